"""Assignments as Dask futures, events back, complete and in order."""
