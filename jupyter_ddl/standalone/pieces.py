"""What programs have in place of our functions: definitions whose text is copied as it stands.

Nobody imports this file but its tests.  A program gets those that it uses, and what they use in
turn, so each is short, plain, and understood without this package.  A cell may bind the public
names anew (``device = device()``) and import what it likes under any name: so pieces refer to each
other by private names only, and import what they need where they need it.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace  # noqa: F401 - the place of `import jupyter_ddl`
from typing import Any

import numpy
import torch

_RANK = int(os.environ.get("RANK", "0"))
_WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
_LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))
_OUTPUT = Path()  # piece: the program sets it
_seed = 0


class _Number(int):
    """A number that may also be asked for as a function."""

    def __call__(self) -> int:
        return int(self)


rank = _Number(_RANK)
world_size = _Number(_WORLD_SIZE)
local_rank = _Number(_LOCAL_RANK)


def _device() -> Any:
    """The device of this process."""
    has_gpu = torch.cuda.is_available()
    return torch.device("cuda", _LOCAL_RANK) if has_gpu else torch.device("cpu")


device = _device


def log(*values: object) -> None:
    """Print values after the time of day and, of several processes, the rank."""
    import time

    of_rank = [f"[rank {_RANK}]"] if _WORLD_SIZE > 1 else []
    print(*of_rank, time.strftime("%H:%M:%S"), *values, flush=True)


def display(*values: object, **_: Any) -> None:
    """Print what a notebook would show."""
    print(*values, sep="\n", flush=True)


def get_ipython() -> None:
    """There is no shell."""


def uniform(low: float, high: float, *, default: Any = None, step: Any = None) -> Any:
    """The default, or the middle."""
    if default is not None:
        return default
    middle = low + (high - low) / 2
    return middle if step is None else low + (middle - low) // step * step


def loguniform(low: float, high: float, *, default: Any = None) -> Any:
    """The default, or the geometric mean."""
    return low**0.5 * high**0.5 if default is None else default


def randint(low: int, high: int, *, default: Any = None, log: bool = False, step: int = 1) -> Any:
    """The default, or the middle."""
    if default is not None:
        return default
    middle = round(low**0.5 * high**0.5) if log else low + (high - low) // 2
    return low + (middle - low) // step * step


def choice(*values: Any, default: Any = None) -> Any:
    """The default, or the first."""
    if len(values) == 1 and isinstance(values[0], list | tuple):
        values = tuple(values[0])
    return values[0] if default is None else default


# -- reports ---------------------------------------------------------------------------------------

_reported: dict[str, float] = {}
_at: dict[str, Any] = {"step": -1, "mode": "w"}


def report(step: int | None = None, *, reduce: str | None = None, **metrics: Any) -> None:
    """Print metrics, and add them to reports.jsonl as a line of JSON."""
    _record(step, reduce, metrics)


def _record(step: int | None, reduce: str | None, metrics: dict[str, Any]) -> None:
    import json

    _at["step"] = _at["step"] + 1 if step is None else int(step)
    values = {
        name: float(value.item() if hasattr(value, "item") else value)
        for name, value in metrics.items()
    }
    if reduce is not None and _WORLD_SIZE > 1:
        values = _reduced(values, reduce)
    _reported.update(values)
    if _RANK == 0:
        shown = (f"{name}={value:.6g}" for name, value in values.items())
        print(f"step={_at['step']}", *shown, flush=True)
        with (_OUTPUT / "reports.jsonl").open(_at["mode"]) as file:
            file.write(json.dumps({"step": _at["step"], **values}) + "\n")
        _at["mode"] = "a"


def _reduced(values: dict[str, float], how: str) -> dict[str, float]:
    """Metrics over all processes."""
    import torch

    dist = torch.distributed
    where = "cuda" if dist.get_backend() == "nccl" else "cpu"
    names = sorted(values)
    numbers = torch.tensor([values[name] for name in names], dtype=torch.float64, device=where)
    dist.all_reduce(numbers, op=getattr(dist.ReduceOp, "SUM" if how == "mean" else how.upper()))
    results = (numbers / _WORLD_SIZE if how == "mean" else numbers).tolist()
    return dict(zip(names, results, strict=True))


def _keep_result(number: int, value: Any) -> None:
    """Print the value of one element, and add it to results.jsonl as a line of JSON."""
    import json

    try:
        line = json.dumps({"item": number, "value": value})
    except TypeError:
        plain = value.tolist() if hasattr(value, "tolist") else repr(value)
        line = json.dumps({"item": number, "value": plain})
    print(line, flush=True)
    with (_OUTPUT / "results.jsonl").open(_at["mode"]) as file:
        file.write(line + "\n")
    _at["mode"] = "a"


# -- seeds -----------------------------------------------------------------------------------------


def _seed_all(seed: int) -> None:
    """Seed the generators that are loaded."""
    import random
    import sys

    global _seed
    _seed = seed
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def _seed_of_item(seed: int, number: int) -> int:
    """The seed of one element, from that of all."""
    from hashlib import blake2b

    digest = blake2b(f"{seed}:{number}".encode(), digest_size=4, person=b"ddl-trial-seed").digest()
    return int.from_bytes(digest, "big")


# -- training on several ranks ---------------------------------------------------------------------


def _meet() -> None:
    """Have this process's GPU, and meet the others."""
    if torch.cuda.is_available():
        torch.cuda.set_device(_LOCAL_RANK)
    if _WORLD_SIZE > 1:
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def _part() -> None:
    """Leave the others."""
    import time

    if _WORLD_SIZE > 1:
        time.sleep(0.2)  # gloo's threads let go of tensors: at Python's end that aborts the process
        torch.distributed.destroy_process_group()


class _Parallel(torch.nn.parallel.DistributedDataParallel):  # type: ignore[misc]
    """DDP that shows the model's own state and attributes."""

    def state_dict(self, *args: Any, **options: Any) -> Any:
        return self.module.state_dict(*args, **options)

    def load_state_dict(self, state: Any, *args: Any, **options: Any) -> Any:
        plain = {name.removeprefix("module."): value for name, value in state.items()}
        return self.module.load_state_dict(plain, *args, **options)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class _RankSampler(torch.utils.data.Sampler):  # type: ignore[misc]
    """This rank's share of an epoch; each epoch has an order of its own."""

    def __init__(self, n_samples: int, batch_size: int, shuffle: bool, drop_last: bool) -> None:
        self.n_samples, self.shuffle, self.epoch = n_samples, shuffle, 0
        whole = n_samples // (_WORLD_SIZE * batch_size) * batch_size
        self.count = whole if drop_last else -(-n_samples // _WORLD_SIZE)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Any:
        order = numpy.arange(self.n_samples)
        if self.shuffle:
            key = _seed % 2**64 << 64 | self.epoch
            order = numpy.random.Generator(numpy.random.Philox(key=key)).permutation(self.n_samples)
        positions = _RANK + _WORLD_SIZE * numpy.arange(self.count)
        return iter(order[positions % max(1, self.n_samples)].tolist())


class _RankLoader(torch.utils.data.DataLoader):  # type: ignore[misc]
    """Batches of this rank's share; each pass is an epoch, which checkpoints count."""

    def __iter__(self) -> Any:
        sampler = self.sampler
        words = numpy.random.SeedSequence((_seed, sampler.epoch, 0, _RANK)).generate_state(2)
        self.generator.manual_seed(int(words[0]) << 31 ^ int(words[1]))
        return self._pass(super().__iter__())

    def _pass(self, batches: Any) -> Any:
        n_given, is_over = 0, False
        try:
            for batch in batches:
                n_given += 1
                yield batch
            is_over = True
        finally:
            if is_over or n_given > 1:  # of a pass with one batch, that was only looked at
                self.sampler.epoch += 1


_loaders: list[Any] = []
_epochs: list[int] = []


def prepare(*objects: Any) -> Any:
    """Models on this rank's device and in DDP, loaders with this rank's share."""
    ready = tuple(map(_prepared, objects))
    return ready[0] if len(ready) == 1 else ready


def _prepared(each: Any) -> Any:
    if isinstance(each, torch.nn.Module):
        each.to(_device())
        trains = any(parameter.requires_grad for parameter in each.parameters())
        if _WORLD_SIZE == 1 or not trains or isinstance(each, _Parallel):
            return each
        return _Parallel(each, device_ids=[_device()] if _device().type == "cuda" else None)
    if not isinstance(each, torch.utils.data.DataLoader) or isinstance(each, _RankLoader):
        return each
    kind = type(each.sampler).__name__
    if kind not in ("RandomSampler", "SequentialSampler", "DistributedSampler"):
        if _WORLD_SIZE == 1:
            return each
        raise ValueError(f"a loader with a {kind} can't be split among {_WORLD_SIZE} ranks")
    shuffle = kind == "RandomSampler" or getattr(each.sampler, "shuffle", False)
    sampler = _RankSampler(len(each.dataset), each.batch_size or 1, shuffle, each.drop_last)
    names = ["batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout"]
    names += ["worker_init_fn", "prefetch_factor", "persistent_workers"]
    options = {name: getattr(each, name) for name in names}
    loader = _RankLoader(each.dataset, sampler=sampler, generator=torch.Generator(), **options)
    sampler.epoch = _epochs[len(_loaders)] if len(_epochs) > len(_loaders) else 0
    _loaders.append(loader)
    return loader


# -- checkpoints -----------------------------------------------------------------------------------


def _share_checkpoint() -> None:
    """Give every host the first process's checkpoint: they go on from one step, or none does."""
    import os

    if int(os.environ.get("LOCAL_WORLD_SIZE", _WORLD_SIZE)) == _WORLD_SIZE:
        return
    dist, path = torch.distributed, _OUTPUT / "checkpoint.pt"
    group = dist.new_group(backend="gloo")
    size = torch.tensor([path.stat().st_size if _RANK == 0 and path.exists() else 0])
    dist.broadcast(size, 0, group)
    n_bytes = int(size)
    data = torch.empty(n_bytes, dtype=torch.uint8)
    if n_bytes and _RANK == 0:
        data = torch.from_file(str(path), size=n_bytes, dtype=torch.uint8)
    if n_bytes:
        dist.broadcast(data, 0, group)
    if _RANK and not _LOCAL_RANK and n_bytes:
        new = _OUTPUT / f"checkpoint.{_RANK}.new"  # hosts may share the folder nevertheless
        data.numpy().tofile(new)
        os.replace(new, path)
    elif _RANK and not _LOCAL_RANK:
        path.unlink(missing_ok=True)
    dist.barrier(group)
    dist.destroy_process_group(group)


def checkpoint(step: int | None = None, **state: Any) -> None:
    """Write checkpoint.pt, whole or not at all; a program that is started again goes on from it."""
    import os

    saved = {name: _plain_state(name, value) for name, value in state.items()}
    saved["step"] = _at["step"] if step is None else int(step)
    epochs = [loader.sampler.epoch for loader in _loaders]
    if _RANK == 0:
        torch.save({"state": saved, "epochs": epochs}, _OUTPUT / "checkpoint.new")
        os.replace(_OUTPUT / "checkpoint.new", _OUTPUT / "checkpoint.pt")


def _plain_state(name: str, value: Any) -> Any:
    """State that can be loaded again without running code of the file."""
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, dict):
        return {key: _plain_state(f"{name}[{key!r}]", item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_state(name, item) for item in value]
    if value is None or isinstance(value, bool | int | float | str | torch.Tensor):
        return value
    raise TypeError(
        f"checkpoint({name}=…) is a {type(value).__name__}; expected numbers, texts, tensors, or "
        f"what has a state_dict()"
    )


def resume() -> dict[str, Any] | None:
    """What the newest checkpoint holds, ``step`` included, or None."""
    path = _OUTPUT / "checkpoint.pt"
    if not path.exists():
        return None
    found = torch.load(path, map_location="cpu", weights_only=True)
    _at.update(step=found["state"]["step"], mode="a")
    _epochs[:] = found["epochs"]
    for loader, epoch in zip(_loaders, _epochs, strict=False):
        loader.sampler.epoch = epoch
    state: dict[str, Any] = found["state"]
    return state
