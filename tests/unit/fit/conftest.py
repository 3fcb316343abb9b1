"""Fits without a cluster."""

from local_fits import local

__all__ = ["local"]
