"""From a found checkpoint to a proven bundle: child processes, the pipeline of one entry, the scan's run."""
