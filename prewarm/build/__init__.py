"""From a found checkpoint to a proven bundle: children, the pipeline of an entry, a scan."""
