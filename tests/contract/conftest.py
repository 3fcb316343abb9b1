"""What a backend sets in this process ends with its test."""

from __future__ import annotations

from tests.integration.conftest import own_dask_config

__all__ = ["own_dask_config"]
