"""Trials as a page reads them out of a binary frame."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

__all__ = ["read_frame"]


def read_frame(frame: bytes) -> dict[str, Any]:
    """What a frame of columns says, with ``values``: those of each column by its name.

    Raises
    ------
    AssertionError
        It does not begin as such a frame.
    """
    assert frame[:4] == b"\0DDL", frame[:40]
    end = 8 + int.from_bytes(frame[4:8], "little")
    message: dict[str, Any] = json.loads(frame[8:end])
    message["values"] = {
        head["name"]: np.frombuffer(
            frame, f"<{head['kind']}", message["n_rows"], end + head["at"]
        ).tolist()
        for head in message["columns"]
    }
    return message
