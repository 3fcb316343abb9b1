"""A worker elsewhere that lies: nothing is written or executed beside the controller."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from distributed import Worker

from jupyter_ddl.client.api import map_cell
from jupyter_ddl.client.clusters import connect_cluster
from tests.integration.backends.foreign import foreign_cluster
from tests.leaks import Home

pytestmark = pytest.mark.integration


def become_hostile(marker: str, dask_worker: Worker) -> None:
    """Executed in the worker, as whoever has taken it over would."""
    import msgspec

    from jupyter_ddl.protocol.events import CheckpointSaved, EventChunk
    from jupyter_ddl.worker import plugin

    class Evil:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return os.mkdir, (marker,)

    publish, read = plugin.RankPlugin._publish_chunk, plugin.read_part

    def lies(self, topic, chunk):  # type: ignore[no-untyped-def]
        honest = msgspec.msgpack.decode(chunk, type=EventChunk)
        evil = CheckpointSaved(0, 1, 1, "../../../evil", 4, 0.0)
        publish(
            self,
            topic,
            msgspec.msgpack.encode(msgspec.structs.replace(honest, events=(evil, *honest.events))),
        )
        self._worker.log_event("warn", {"message": __import__("pickle").dumps(Evil())})

    def reads(run_id, path, offset, limit, dask_worker):  # type: ignore[no-untyped-def]
        return (b"evil", 4) if "evil" in path else read(run_id, path, offset, limit, dask_worker)

    async def lists(run_id, dask_worker):  # type: ignore[no-untyped-def]
        return Evil()

    plugin.RankPlugin._publish_chunk = lies  # type: ignore[method-assign]
    plugin.read_part = reads  # type: ignore[assignment]
    plugin.list_written = lists  # type: ignore[assignment]


def test_nothing_of_its_is_written_or_executed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.work)
    marker = home.work / "executed"
    with foreign_cluster(home, 1, nanny=False, tls=False) as foreign:
        cluster = connect_cluster(foreign.address)
        try:
            with foreign.client() as owner:
                owner.run(become_hostile, str(marker))
            run = map_cell("open('mine', 'w').close()\nitem * 2\n", [1, 21], timeout_s=60)
            assert run.values == [2, 42], "the events were asked for again"
            assert len(run.files) == 0, "its list of files is not believed"
        finally:
            cluster.stop()
    assert not marker.exists()
    assert not [path for path in home.root.rglob("*evil*") if "elsewhere" not in str(path)]
    log = "\n".join(path.read_text() for path in Path(home.root).rglob("*.log"))
    assert "a chunk of events is left out" in log
