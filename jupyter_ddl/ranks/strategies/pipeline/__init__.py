"""``--strategy pipeline``: each rank computes some of the layers."""
