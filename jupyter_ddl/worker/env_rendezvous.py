"""``init_process_group("env://")`` in a rank, more than once.

Every round of a group has one store, and torch stores the addresses of a process group under the
same keys each time.  A second group, after the first was destroyed, would dial the first one's
closed ports; so each gets a part of the store of its own.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["separate_process_groups"]

_SCHEME = "env"
_Handler = Callable[..., Iterator[tuple[Any, int, int]]]


def separate_process_groups() -> None:
    """Give every following ``init_process_group("env://")`` of this process fresh keys.

    All ranks must initialise equally often, which they must anyway.
    """
    from torch.distributed import PrefixStore

    rendezvous = sys.modules["torch.distributed.rendezvous"]
    # torch has no public way to replace a handler: register_rendezvous_handler() only adds.
    handlers: dict[str, _Handler] | None = getattr(rendezvous, "_rendezvous_handlers", None)
    if handlers is None or _SCHEME not in handlers:
        return  # another version of torch; the first initialisation works all the same
    original = handlers[_SCHEME]
    numbers = itertools.count()

    def handler(*args: Any, **options: Any) -> Iterator[tuple[Any, int, int]]:
        number = next(numbers)
        for store, rank, world_size in original(*args, **options):
            yield PrefixStore(f"jupyter_ddl/init/{number}", store), rank, world_size

    handlers[_SCHEME] = handler
