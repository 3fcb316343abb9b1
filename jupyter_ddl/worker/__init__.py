"""What runs in a Dask worker's process: the plugin, the rank pool, event chunks; no user code."""
