"""The cluster that most tests of persistent groups share."""

from __future__ import annotations

import pytest

from jupyter_ddl.client.group import RankGroup, open_group


@pytest.fixture
def group(cluster: object) -> RankGroup:
    """Two ranks without a process group: they are there in a tenth of a second."""
    return open_group(2, initialize=False)
