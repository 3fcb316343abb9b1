"""Fits without a cluster."""

from tests.unit.sklearn_fit.local_fits import local

__all__ = ["local"]
