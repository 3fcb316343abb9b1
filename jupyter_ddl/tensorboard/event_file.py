"""One event file of TensorBoard, written as if from its beginning and appended to in fact."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

__all__ = ["EventFile"]


class EventFile:
    """Collects events; :meth:`flush` appends those that the file does not have yet.

    The bytes are the same whenever they are made, so what is there already is skipped by its
    length alone, a half-written record included.

    Parameters
    ----------
    path : Path
        Its directory is made when there is something to write.
    at_s : float
        Unix seconds of the first record.
    """

    def __init__(self, path: Path, at_s: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._path = path
        self._pending = BytesIO()
        self._records = RecordWriter(self._pending)
        self._n_made = 0
        self.add(Event(wall_time=at_s, file_version="brain.Event:2"))

    def add(self, event: Any) -> None:
        """Append one ``Event`` of TensorBoard."""
        # Maps inside a message have no order of their own.
        self._records.write(event.SerializeToString(deterministic=True))

    def flush(self) -> None:
        """Bring the file up to date.  Raises OSError."""
        data = self._pending.getvalue()
        if not data:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            # Its size as it is: the last attempt may have ended in the middle of a write.
            file.write(data[max(0, file.tell() - self._n_made) :])
        self._n_made += len(data)
        self._pending.seek(0)
        self._pending.truncate()
