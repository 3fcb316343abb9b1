"""Seeds of trials, derived from the seed of their run."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["derive_seed"]


def derive_seed(run_seed: int, trial: int) -> int:
    """Seed of one trial: the same run seed and number always give the same seed.

    Hashed and not added, so that run seeds 1 and 2 share no stream of random numbers.

    Parameters
    ----------
    run_seed : int
        Any integer.
    trial : int
        The trial's number, from 0.

    Returns
    -------
    int
        Between 0 and 2**32 - 1, the range that numpy's legacy generator accepts.
    """
    digest = blake2b(f"{run_seed}:{trial}".encode(), digest_size=4, person=b"ddl-trial-seed")
    return int.from_bytes(digest.digest(), "big")
