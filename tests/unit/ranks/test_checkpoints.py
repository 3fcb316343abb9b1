"""Checkpoints: what can be saved, how it is found again, and what damage does."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jupyter_ddl.errors import CapacityError
from jupyter_ddl.protocol.events import CheckpointSaved, Notice
from jupyter_ddl.ranks import checkpoints
from jupyter_ddl.ranks.checkpoints import (
    FORMAT,
    CheckpointFileError,
    checkpoint_names,
    newest_checkpoint,
    read_checkpoint,
    save_checkpoint,
)
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.tracebacks import kind_of


def _ignore(_text: str) -> None:
    raise AssertionError(_text)


def _roundtrip(directory: Path, state: dict[str, Any]) -> dict[str, Any]:
    save_checkpoint(directory, 0, 1, 3, state)
    loaded = newest_checkpoint(directory, 0, _ignore)
    assert loaded is not None
    assert loaded.pop("step") == 3
    return loaded


def test_plain_values_come_back_as_they_were(tmp_path: Path) -> None:
    random.seed(1)
    state = {
        "numbers": [1, 2.5, True, None, -(2**70), 10**5000, float("inf")],
        "nested": {"a": (1, [2, {3: "x", ("k", 1): b"bytes"}]), "s": {1, 2}, "f": frozenset("a")},
        "python_random": random.getstate(),
        "generator": np.random.default_rng(5).bit_generator.state,
        "empty": {},
    }
    assert _roundtrip(tmp_path, state) == state


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4)[:, ::2],
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(3.5),
        np.zeros((0, 4), np.float32),
        np.array(["a", "ccc"]),
        np.array(["2024-01-01"], "datetime64[D]"),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.arange(3, dtype=">i2"),
    ],
)
@pytest.mark.parametrize("with_tensor", [False, True])
def test_arrays_come_back_equal_and_writable(
    tmp_path: Path, array: np.ndarray, with_tensor: bool
) -> None:
    import torch

    state: dict[str, Any] = {"x": array, "scalar": np.float32(1.5)}
    if with_tensor:
        state["tensor"] = torch.ones(2)
    loaded = _roundtrip(tmp_path, state)
    assert loaded["x"].dtype == array.dtype
    assert loaded["x"].flags.writeable
    np.testing.assert_array_equal(loaded["x"], array)
    assert type(loaded["scalar"]) is np.float32


def test_models_and_optimizers_are_saved_by_their_state(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    state = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "epoch": 3}
    loaded = _roundtrip(tmp_path, state)
    other = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    other.load_state_dict(loaded["model"])
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    again = torch.optim.Adam(other.parameters(), lr=0.5)
    again.load_state_dict(loaded["optimizer"])
    assert again.param_groups[0]["lr"] == pytest.approx(0.01)
    assert loaded["epoch"] == 3


def test_a_torch_checkpoint_loads_with_weights_only(tmp_path: Path) -> None:
    import torch

    saved = save_checkpoint(tmp_path, 0, 1, 3, {"w": torch.arange(3)})
    with (tmp_path / saved.file).open("rb") as file:
        file.seek(256)
        content = torch.load(file, weights_only=True)
    assert torch.equal(content["leaves"][0], torch.arange(3))


def test_a_view_does_not_drag_its_storage_into_the_file(tmp_path: Path) -> None:
    import torch

    saved = save_checkpoint(tmp_path, 0, 1, 3, {"w": torch.zeros(1_000_000)[:1]})
    assert saved.size_bytes < 10_000


def test_tied_tensors_stay_one(tmp_path: Path) -> None:
    import torch

    weight = torch.zeros(100_000)
    saved = save_checkpoint(tmp_path, 0, 1, 3, {"a": weight, "b": weight})
    assert saved.size_bytes < 500_000


class _Unsavable:
    def __repr__(self) -> str:
        return "<unsavable>"


def test_what_cannot_be_saved_is_named_by_its_path(tmp_path: Path) -> None:
    state = {"config": {"layers": [1, _Unsavable()]}}
    with pytest.raises(ReportError, match=r"config\['layers'\]\[1\] is <unsavable> \(_Unsavable\)"):
        save_checkpoint(tmp_path, 0, 1, 3, state)
    with pytest.raises(ReportError, match="x is an array of object"):
        save_checkpoint(tmp_path, 0, 1, 3, {"x": np.array([_Unsavable()])})
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ReportError, match="contains itself"):
        save_checkpoint(tmp_path, 0, 1, 3, {"loop": loop})
    assert list((tmp_path / "trial-0").iterdir()) == []


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in range(9, 12):
        save_checkpoint(tmp_path, 4, 1, step, {"x": step})
    save_checkpoint(tmp_path, 4, 2, 0, {"x": "anew"})
    names = sorted(path.name for path in (tmp_path / "trial-4").iterdir())
    assert names == ["step-0-a2.ckpt", "step-11-a1.ckpt"]
    assert newest_checkpoint(tmp_path, 4, _ignore) == {"x": "anew", "step": 0}
    assert newest_checkpoint(tmp_path, 5, _ignore) is None


def test_a_late_attempt_keeps_what_it_just_wrote(tmp_path: Path) -> None:
    for attempt in (2, 3, 1):
        saved = save_checkpoint(tmp_path, 0, attempt, 7, {"x": attempt})
    assert (tmp_path / saved.file).exists()
    assert newest_checkpoint(tmp_path, 0, _ignore) == {"x": 3, "step": 7}


@pytest.mark.parametrize("codec", ["raw", "torch"])
def test_a_file_cut_at_any_length_falls_back_to_the_one_before(tmp_path: Path, codec: str) -> None:
    import torch

    value = torch.ones(2) if codec == "torch" else [1.5, "x"]
    save_checkpoint(tmp_path, 0, 1, 1, {"v": value})
    saved = save_checkpoint(tmp_path, 0, 1, 2, {"v": value})
    path = tmp_path / saved.file
    whole = path.read_bytes()
    assert len(whole) == saved.size_bytes
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        notices: list[str] = []
        loaded = newest_checkpoint(tmp_path, 0, notices.append)
        assert loaded is not None
        assert loaded["step"] == 1
        assert len(notices) == 1
        assert "step-2-a1.ckpt of trial 0 was skipped" in notices[0]
    path.write_bytes(whole)
    assert newest_checkpoint(tmp_path, 0, _ignore)["step"] == 2  # type: ignore[index]


def test_a_changed_byte_anywhere_in_the_state_is_noticed(tmp_path: Path) -> None:
    saved = save_checkpoint(tmp_path, 0, 1, 2, {"v": [1.5, "x"]})
    path = tmp_path / saved.file
    whole = path.read_bytes()
    for place in range(256, len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        notices: list[str] = []
        assert newest_checkpoint(tmp_path, 0, notices.append) is None
        assert "its content changed" in notices[0]


def test_a_newer_format_is_passed_over_with_a_notice(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 0, 1, 1, {"v": 1})
    saved = save_checkpoint(tmp_path, 0, 1, 2, {"v": 2})
    path = tmp_path / saved.file
    old, new = f'"format": {FORMAT}'.encode(), f'"format": {FORMAT + 1}'.encode()
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    notices: list[str] = []
    assert newest_checkpoint(tmp_path, 0, notices.append) == {"v": 1, "step": 1}
    assert f"its format is {FORMAT + 1}, and this version reads {FORMAT}" in notices[0]


def test_a_partial_file_of_a_crash_is_no_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 0, 1, 1, {"v": 1})
    (tmp_path / "trial-0" / ".partial-abc").write_bytes(b"half")
    assert newest_checkpoint(tmp_path, 0, _ignore) == {"v": 1, "step": 1}


def test_loading_runs_no_code_from_the_file(tmp_path: Path) -> None:
    import json
    import pickle

    from blake3 import blake3

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    payload = pickle.dumps(Evil(), protocol=2)
    header = {
        "format": FORMAT,
        "codec": "torch",
        "blake3": blake3(payload).hexdigest(),
        "size_bytes": len(payload),
        "step": 1,
    }
    path = tmp_path / "evil.ckpt"
    path.write_bytes(json.dumps(header).encode().ljust(255) + b"\n" + payload)
    with pytest.raises(CheckpointFileError, match="cannot be decoded"):
        read_checkpoint(path)
    assert not (tmp_path / "ran").exists()


SOURCE = """
saved = resume()
start = 0 if saved is None else saved["step"] + 1
total = 0 if saved is None else saved["total"]
for step in range(start, 6):
    total += step
    report(step=step, total=total)
    checkpoint(step=step, total=total)
    if step == 3 and saved is None:
        raise RuntimeError("first attempt fails")
"""


def test_the_next_attempt_goes_on_from_the_newest_checkpoint(host: Any) -> None:
    rank = host.load(SOURCE, metric="total")
    assert rank.run(attempt=1).outcome == "failed"
    rank.events.clear()
    finished = rank.run(attempt=2)
    assert (finished.outcome, finished.value) == ("complete", 15.0)
    saved = rank.of(CheckpointSaved)
    assert [(each.step, each.attempt) for each in saved] == [(4, 2), (5, 2)]
    assert saved[-1].file == "trial-0/step-5-a2.ckpt"
    file = host.run_dir / "checkpoints" / saved[-1].file
    assert file.stat().st_size == saved[-1].size_bytes


def test_a_damaged_checkpoint_is_told_to_the_user(host: Any) -> None:
    rank = host.load(SOURCE, metric="total")
    rank.run(attempt=1)
    newest = host.run_dir / "checkpoints" / "trial-0" / "step-3-a1.ckpt"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert rank.run(attempt=2).value == 15.0
    (notice,) = rank.of(Notice)
    assert "step-3-a1.ckpt of trial 0 was skipped" in notice.text
    assert "an older one is tried" in notice.text


def test_the_step_of_a_checkpoint_is_the_last_reported_one_by_default(host: Any) -> None:
    rank = host.load("report(step=8, v=1)\ncheckpoint(x=1)\n", metric="v")
    rank.run()
    assert rank.of(CheckpointSaved)[0].step == 8


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_has_its_own_kind(host: Any) -> None:
    source = "with open('/dev/full', 'w', buffering=1) as file:\n    file.write('x\\n')\n"
    failure = host.load(source).run().failure
    assert failure.kind == "disk"
    assert failure.message.endswith("device; the run goes on when there is room")


def test_a_checkpoint_that_finds_no_room_is_told_with_its_path_and_what_is_free(
    tmp_path: Path, monkeypatch: Any
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    save_checkpoint(tmp_path, 0, 1, 1, {"x": 1})
    monkeypatch.setattr(checkpoints, "write_checkpoint", full)
    with pytest.raises(CapacityError, match="the checkpoints before it are kept") as caught:
        save_checkpoint(tmp_path, 0, 1, 2, {"x": 2})
    assert f"saving {tmp_path}/trial-0/step-2-a1.ckpt failed: No space" in caught.value.message
    assert f"bytes free at {tmp_path}/trial-0; " in caught.value.message
    assert kind_of(caught.value) == "disk"
    assert checkpoint_names(tmp_path, 0) == ["step-1-a1.ckpt"]
