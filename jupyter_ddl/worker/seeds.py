"""Seed the random generators that are loaded in a rank process.

All ranks of a group get the same seed, so that each constructs the same model.  What must differ
does: the order of samples comes from the prepared loader, whose worker processes are seeded by
rank.  Dropout draws the same masks on every rank (for other samples); who wants others calls
``torch.manual_seed(seed + rank())`` after the model is made.
"""

from __future__ import annotations

import random
import sys

__all__ = ["seed_everything"]


def seed_everything(seed: int) -> None:
    """Seed ``random``, and numpy's global generator and torch where they are loaded.

    Parameters
    ----------
    seed : int
        From 0 to 2**32 - 1.
    """
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.version.cuda is None and torch.version.hip is None and sys.platform != "darwin":
        # Same effect without accelerators, in 1 µs where torch.manual_seed takes 100: that
        # one remembers a stack trace for devices that start later.
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
