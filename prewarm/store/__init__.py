"""What must last: the database, bundles, the signed manifest, and collecting what nobody names."""
