"""What runs under the deployment's interpreter: standard library and torch only, run from a copy."""
