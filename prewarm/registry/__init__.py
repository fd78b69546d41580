"""What should be warm: declarations, layouts, checkpoints, and the scan that joins them."""
