"""Drives runs: pure machines decide, one thin shell carries out over Dask what they decide."""
