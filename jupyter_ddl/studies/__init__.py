"""Which trials a search consists of, which of them stop early, and when to give up.

Pure state and decisions for the search driver: no I/O, no clock, no threads.
"""

from jupyter_ddl.studies.batching import BatchSizer, reuse_process
from jupyter_ddl.studies.pruners import Pruner, hopeless, make_pruner
from jupyter_ddl.studies.samplers import is_remote
from jupyter_ddl.studies.study import Exhausted, NeedsRemoteAsk, NextTrial, Proposal, Study, Wait

__all__ = [
    "BatchSizer",
    "Exhausted",
    "NeedsRemoteAsk",
    "NextTrial",
    "Proposal",
    "Pruner",
    "Study",
    "Wait",
    "hopeless",
    "is_remote",
    "make_pruner",
    "reuse_process",
]
