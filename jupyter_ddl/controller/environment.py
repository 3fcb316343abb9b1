"""The environments of a cluster's workers: asked for, patched, and the same on replaced workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec
from distributed import Client

from jupyter_ddl.driving.calls import WorkerLostError, decoded
from jupyter_ddl.driving.workers import WorkerInfo
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.facts import (
    EnvironmentCall,
    EnvironmentStatus,
    Facts,
    Patch,
    WorkerEnvironment,
)
from jupyter_ddl.protocol.reading import from_msgpack, msgpack_decoder
from jupyter_ddl.protocol.replies import Accepted, EnvironmentResult
from jupyter_ddl.protocol.requests import (
    EnvironmentBody,
    GetEnvironment,
    SyncEnvironment,
    TellVerdict,
)
from jupyter_ddl.store.atomic import write_whole
from jupyter_ddl.store.blobs import read_blob
from jupyter_ddl.store.packages import normal_name
from jupyter_ddl.store.paths import blob_dirs, private_dir, runtime_path
from jupyter_ddl.worker.packages import INSTALL_TIMEOUT_S, ask_environment

__all__ = ["KeptPackages", "WorkerEnvironments", "merge_patches"]


# What ``%cluster env sync`` has given a cluster, on disk: for the controller after this one.
#
# ``<runtime>/<cluster>.packages`` is written with each sync and removed when the controller ends
# with no unfinished run.  A controller that was killed, or stopped in mid-run, so leaves it to the
# next one of its name, whose runs need the same packages.

log = logging.getLogger(__name__)

_ANSWER = msgpack_decoder(WorkerEnvironment)


class _Record(msgspec.Struct, frozen=True):
    made_for: tuple[str, ...]
    patch: Patch
    wheels: dict[str, bytes]


class KeptPackages:
    """Every call is one read or write of a file, of up to 256 MB.

    Parameters
    ----------
    packages_from : str
        What brings the workers' packages, as the backend says.
    """

    def __init__(self, spec: ClusterSpec, packages_from: str) -> None:
        self._path = runtime_path() / f"{spec.name}.packages"
        # With another image or Python the versions of then are the wrong ones.
        self._made_for = (spec.backend, packages_from, sys.version)

    def read(self) -> tuple[Patch, dict[str, bytes]] | None:
        """What the controller before has left, if it was for workers like these."""
        try:
            record = from_msgpack(self._path.read_bytes(), _Record)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("%s is not read: %s", self._path, error)
            return None
        return (record.patch, record.wheels) if record.made_for == self._made_for else None

    def write(self, patch: Patch, wheels: dict[str, bytes]) -> None:
        """Keep a list in the place of the former one, whole or not at all."""
        private_dir(self._path.parent)
        write_whole(self._path, msgspec.msgpack.encode(_Record(self._made_for, patch, wheels)))

    def remove(self) -> None:
        """Nobody is to have these packages any more."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()


_ASK_TIMEOUT_S = 10.0
_MARGIN_S = 30.0
_AGAIN_S = 15.0
_KEEP_S = 2.0
"""Older answers are given as well, but asked for again."""


class WorkerEnvironments:
    """Used on the controller's loop only.

    Parameters
    ----------
    client : callable
        The present connection to the scheduler.
    workers : callable
        Workers by address.
    on_ready : callable
        Called when a worker that had to be patched may take work.
    kept : KeptPackages
        Where the list of packages outlives this controller.
    apart : bool
        Workers have file systems of their own.
    """

    def __init__(
        self,
        client: Callable[[], Client],
        workers: Callable[[], Mapping[str, WorkerInfo]],
        on_ready: Callable[[], None],
        *,
        kept: KeptPackages,
        apart: bool,
    ) -> None:
        self._kept = kept
        self._apart = apart
        self._client = client
        self._workers = workers
        self._on_ready = on_ready
        self._patch = Patch()
        self._wheels: dict[str, bytes] = {}
        self._patched: set[str] = set()
        self._preparing: dict[str, asyncio.Task[None]] = {}
        self._syncing = asyncio.Lock()
        self._answers: dict[str, WorkerEnvironment] = {}
        self._facts: dict[str, Facts] = {}
        self._looked_at_s = 0.0
        self._looking: asyncio.Task[None] | None = None
        self.verdict: EnvironmentStatus | None = None
        """The last one that a kernel has told."""

    async def recall(self) -> tuple[str, ...]:
        """Give workers what a controller before this one has given its own; returns the list."""
        found = await asyncio.to_thread(self._kept.read)
        if found is not None:
            self._patch, self._wheels = found
        return self._patch.requirements

    def forget(self) -> None:
        """The next controller of this name begins without."""
        self._kept.remove()

    async def answer(self, body: EnvironmentBody) -> EnvironmentResult | Accepted:
        """What a client's request comes to."""
        match body:
            case GetEnvironment(known=known, fresh=fresh):
                return await self.ask(known, fresh=fresh)
            case SyncEnvironment(patch=patch):
                return await self.sync(patch)
            case TellVerdict(verdict=verdict):
                self.note(verdict)
        return Accepted()

    def note(self, verdict: EnvironmentStatus | None) -> None:
        """Keep a kernel's verdict, for whoever looks at the cluster."""
        self.verdict = verdict or self.verdict

    async def ask(self, known: Iterable[str], *, fresh: bool) -> EnvironmentResult:
        """The environments of workers that take work; the silent are left out after 10 s.

        Unless it is to be fresh, what workers told last will do, and they are asked behind it.
        """
        addresses = tuple(each for each in self._workers() if self.is_ready(each))
        missing = tuple(each for each in addresses if fresh or each not in self._answers)
        if missing:
            await self._poll(missing)
        elif time.monotonic() - self._looked_at_s > _KEEP_S and self._looking is None:
            self._looking = asyncio.create_task(self._poll(addresses), name="ask environments")
        return self._result({a: self._answers[a] for a in addresses if a in self._answers}, known)

    async def _poll(self, addresses: tuple[str, ...]) -> None:
        try:
            found = await self._call(addresses, EnvironmentCall(tuple(self._facts)), _ASK_TIMEOUT_S)
        finally:
            self._looking = None
        self._take(found)
        self._looked_at_s = time.monotonic()
        for address in addresses:
            if address not in found:
                self._answers.pop(address, None)

    def _take(self, answers: Mapping[str, WorkerEnvironment]) -> None:
        self._answers.update(answers)
        for answer in answers.values():
            if answer.facts is not None:
                self._facts[answer.digest] = answer.facts

    async def sync(self, patch: Patch) -> EnvironmentResult:
        """Install packages on all workers, and on those that will take their places.

        A package of an earlier patch is kept, unless this one has another version of it.  What
        could not be installed on any worker is not remembered.
        """
        async with self._syncing:
            merged = merge_patches(self._patch, patch)
            wheels = await asyncio.to_thread(_wheels_of, merged)
            addresses = tuple(self._workers())
            call = EnvironmentCall((), merged, wheels)
            answers = await self._call(addresses, call, INSTALL_TIMEOUT_S + _MARGIN_S)
            self._take(answers)
            done = {address for address, answer in answers.items() if not answer.error}
            if done or not addresses:
                self._patch, self._wheels, self._patched = merged, wheels, done
                await asyncio.to_thread(self._kept.write, merged, wheels)
                log.info("environment patched: %s", ", ".join(merged.requirements))
                self._on_ready()
            return self._result(answers, ())

    def is_ready(self, address: str) -> bool:
        """Whether a worker has all that others were given; if not, it is being prepared."""
        if not self._patch.requirements or address in self._patched:
            return True
        if address not in self._preparing:
            task = asyncio.create_task(self._prepare(address), name=f"prepare {address}")
            self._preparing[address] = task
            task.add_done_callback(lambda _: self._preparing.pop(address, None))
        return False

    async def close(self) -> None:
        tasks = [*self._preparing.values(), *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _prepare(self, address: str) -> None:
        """Patch a worker that has come; again and again while it is there."""
        while address in self._workers():
            async with self._syncing:
                call = EnvironmentCall((), self._patch, self._wheels)
                answers = await self._call((address,), call, INSTALL_TIMEOUT_S + _MARGIN_S)
                self._take(answers)
                answer = answers.get(address)
                if answer is not None and not answer.error:
                    self._patched.add(address)
                    break
            why = "it did not answer" if answer is None else answer.error
            log.warning("worker %s takes no work, its packages are missing: %s", address, why)
            await asyncio.sleep(_AGAIN_S)
        self._on_ready()

    async def _call(
        self, addresses: tuple[str, ...], call: EnvironmentCall, timeout_s: float
    ) -> dict[str, WorkerEnvironment]:
        if not addresses:
            return {}
        payload = msgspec.msgpack.encode(call)
        try:
            async with asyncio.timeout(timeout_s):
                replies = await self._client().run(
                    ask_environment, payload, workers=list(addresses), on_error="return"
                )
        except (OSError, TimeoutError, ValueError) as error:
            log.warning("workers did not report their environment: %r", error)
            return {}
        answers = {}
        for address, reply in replies.items():
            try:
                if isinstance(reply, bytes):
                    answers[address] = decoded(address, reply, _ANSWER)
            except WorkerLostError as error:
                log.warning("an environment is not known: %s", error.message)
        return answers

    def _result(
        self, answers: Mapping[str, WorkerEnvironment], known: Iterable[str]
    ) -> EnvironmentResult:
        workers = self._workers()
        names = {address: info.name for address, info in workers.items()}
        wanted = {answer.digest for answer in answers.values()}.difference(known)
        return EnvironmentResult(
            workers={names.get(a, a): answer.digest for a, answer in answers.items()},
            facts={digest: self._facts[digest] for digest in wanted},
            errors={names.get(a, a): answer.error for a, answer in answers.items() if answer.error},
            n_silent=len({each for each in workers if self.is_ready(each)} - answers.keys()),
            patch=self._patch.requirements,
            apart=self._apart,
        )


def merge_patches(old: Patch, new: Patch) -> Patch:
    """Both; of a package that both have, the new one."""
    names = {_name(text) for text in new.requirements}
    kept = [text for text in old.requirements if _name(text) not in names]
    wheels = {each.name: each for each in old.wheels if _wheel_name(each.name) not in names}
    wheels |= {each.name: each for each in new.wheels}
    contents = {name: each for name, each in old.contents.items() if name not in names}
    requirements = (*kept, *new.requirements)
    return Patch(requirements, tuple(wheels.values()), new.made_at_s, contents | new.contents)


def _name(requirement: str) -> str:
    return normal_name(requirement.partition("==")[0].partition("@")[0].strip())


def _wheel_name(file: str) -> str:
    return normal_name(file.partition("-")[0])


def _wheels_of(patch: Patch) -> dict[str, bytes]:
    directories = blob_dirs()
    return {each.name: read_blob(each.digest, directories) for each in patch.wheels}
