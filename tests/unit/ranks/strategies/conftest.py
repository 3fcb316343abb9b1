"""A process group of this process only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from jupyter_ddl.testing.process_groups import end_process_group


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    end_process_group()
