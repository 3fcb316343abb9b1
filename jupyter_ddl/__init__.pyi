"""The public names with their types; a test holds this file against ``_EXPORTS``."""

from typing import Any

from jupyter_ddl import dist
from jupyter_ddl.client.api import map_cell as map  # noqa: A004, F401 - not in __all__, for star imports
from jupyter_ddl.client.api import search
from jupyter_ddl.client.api import train as train  # not in __all__ either
from jupyter_ddl.client.clusters import (
    Cluster,
    attach_cluster,
    connect_cluster,
    list_clusters,
    start_cluster,
)
from jupyter_ddl.client.dask_client import connect_client as client  # noqa: F401
from jupyter_ddl.client.group import RankGroup, open_group
from jupyter_ddl.client.history import list_runs as runs
from jupyter_ddl.client.run import Run
from jupyter_ddl.protocol.sampling import Sampler
from jupyter_ddl.ranks.incell import (
    checkpoint,
    choice,
    device,
    device_mesh,
    local_rank,
    log,
    loguniform,
    prepare,
    prepare_step,
    randint,
    rank,
    report,
    resume,
    uniform,
    world_size,
)
from jupyter_ddl.recording.show import replay
from jupyter_ddl.sklearn_fit.fit_api import fit as fit  # not in __all__ either

__version__: str
__all__ = [
    "Cluster",
    "RankGroup",
    "Run",
    "Sampler",
    "__version__",
    "attach_cluster",
    "checkpoint",
    "choice",
    "connect_cluster",
    "device",
    "device_mesh",
    "dist",
    "list_clusters",
    "load_ipython_extension",
    "local_rank",
    "log",
    "loguniform",
    "open_group",
    "prepare",
    "prepare_step",
    "randint",
    "rank",
    "replay",
    "report",
    "resume",
    "runs",
    "search",
    "start_cluster",
    "uniform",
    "world_size",
]

def load_ipython_extension(ipython: Any) -> None: ...
