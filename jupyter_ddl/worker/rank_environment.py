"""What a worker knows and changes of the environment that its ranks have."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable

import msgspec
from distributed import Worker

from jupyter_ddl.errors import WorkerEnvironmentError
from jupyter_ddl.spec.facts import CORE, EnvironmentCall, Facts, Patch, WorkerEnvironment
from jupyter_ddl.store.blobs import digest_of
from jupyter_ddl.worker.facts import EnvironmentReader
from jupyter_ddl.worker.overlay import install
from jupyter_ddl.worker.rank_pool import RankPool

__all__ = ["EXTENSION", "RankEnvironment", "ask_environment"]

EXTENSION = "jupyter_ddl_environment"
"""Name among the extensions of the Dask worker."""
_POLL_S = 0.02
_N_POLLS = 400


class RankEnvironment:
    """Used on the worker's loop only.

    Ranks are forked from the zygote: what it has loaded they have, whatever lies on disk by now.
    The packages of the worker process itself stay as they were when it started.
    """

    def __init__(self, pool: RankPool) -> None:
        self._pool = pool
        self._own = EnvironmentReader(sys.path)
        self._own.note_loaded(name.partition(".")[0] for name in tuple(sys.modules))
        self._path: tuple[str, ...] = tuple(sys.path)
        self._ranks = EnvironmentReader(self._path)
        self._merged: tuple[str, Facts] | None = None
        self._merged_of: tuple[str, str] = ("", "")
        self._changing = asyncio.Lock()
        self._patch: Patch | None = None
        pool.on_zygote = self._new_zygote
        pool.on_loaded = self._loaded

    async def call(self, payload: bytes) -> bytes:
        """Answer an encoded :class:`EnvironmentCall`."""
        call = msgspec.msgpack.decode(payload, type=EnvironmentCall)
        error = ""
        if call.patch is not None:
            try:
                await self._apply(call.patch, call.wheels)
            except (WorkerEnvironmentError, OSError) as failure:
                error = getattr(failure, "message", str(failure))
        digest, facts = self._facts()
        known = digest in call.known
        return msgspec.msgpack.encode(WorkerEnvironment(digest, None if known else facts, error))

    async def _apply(self, patch: Patch, wheels: dict[str, bytes]) -> None:
        async with self._changing:
            if patch == self._patch:
                return
            overlay = str(await install(patch, wheels)) if patch.requirements else ""
            self._path = (overlay, *sys.path)
            await self._pool.renew(overlay)
            self._patch = patch

    def _new_zygote(self, loaded: Iterable[str]) -> None:
        self._ranks = EnvironmentReader(self._path)
        self._ranks.note_loaded(loaded)

    def _loaded(self, names: Iterable[str]) -> None:
        self._ranks.note_loaded(names)

    def _facts(self) -> tuple[str, Facts]:
        """The ranks' facts, with the worker's own where it is the worker that matters."""
        of = (self._own.digest, self._ranks.digest)
        if self._merged is None or of != self._merged_of:
            facts = _merge(self._own.facts(), self._ranks.facts())
            digest = digest_of(msgspec.json.encode(facts, order="sorted"))
            self._merged, self._merged_of = (digest, facts), of
        return self._merged


def _merge(own: Facts, ranks: Facts) -> Facts:
    packages, held = dict(ranks.packages), dict(ranks.held)
    for name in CORE:
        for source, target in ((own.packages, packages), (own.held, held)):
            target.pop(name, None)
            if name in source:
                target[name] = source[name]
    ordered = dict(sorted(packages.items()))
    return msgspec.structs.replace(ranks, packages=ordered, held=dict(sorted(held.items())))


async def ask_environment(encoded: bytes, dask_worker: Worker) -> bytes:
    """Answer an encoded ``EnvironmentCall`` on a worker; called with ``Client.run``."""
    for _ in range(_N_POLLS):
        if EXTENSION in dask_worker.extensions:
            break
        await asyncio.sleep(_POLL_S)  # a worker is announced before its plugins are set up
    answering: RankEnvironment = dask_worker.extensions[EXTENSION]
    return await answering.call(encoded)
