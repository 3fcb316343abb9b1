"""What a cell is told before it is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.client.environment import check_before
from jupyter_ddl.errors import ClusterError
from tests.leaks import Home


def test_of_a_cluster_that_is_gone_it_is_that_and_not_its_environment(
    home: Home, tmp_path: Path
) -> None:
    with pytest.raises(ClusterError, match=r"^cluster 'lost' is not running; `%cluster start"):
        check_before("lost", [], tmp_path, None)
