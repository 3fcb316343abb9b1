"""What a controller refuses leaves nothing behind, and the controller as it was."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import JupyterDDLError, RunNotFoundError, SpecError
from jupyter_ddl.protocol.requests import PROTOCOL_VERSION, Hello, ResumeRun, SubmitRun, WatchRun
from jupyter_ddl.protocol.sampling import SamplerSpec
from jupyter_ddl.verbs.search import Search
from tests.leaks import Home
from tests.run_tools import STEPS, start_search
from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration


def test_a_refused_run_leaves_no_trace_and_its_id_free(own_cluster: Cluster, home: Home) -> None:
    good = start_search(STEPS, 2).wait(PATIENCE_S)
    spec, verb = good.spec, good.spec.verb
    assert isinstance(verb, Search)

    def submit(**changes: Any) -> None:
        session().ask("test", SubmitRun(msgspec.structs.replace(spec, **changes)))

    broken = msgspec.structs.replace(verb, sampler=SamplerSpec("nonsense"))
    with pytest.raises(JupyterDDLError, match="nonsense"):
        submit(run_id="r2", verb=broken)
    with pytest.raises(JupyterDDLError, match="exists already"):
        submit(run_id=spec.run_id)
    for run_id in ("../r3", "", "a/b", ".."):
        with pytest.raises(JupyterDDLError, match="is not the id of a run"):
            submit(run_id=run_id)
    assert [path.name for path in (home.data / "runs").iterdir()] == [spec.run_id]
    submit(run_id="r2")
    assert Run("r2").wait(PATIENCE_S).state == "complete"


def test_what_cannot_be_answered_is_refused_in_a_sentence(cluster: Cluster) -> None:
    for body in (WatchRun("nobody"), ResumeRun("nobody")):
        with pytest.raises(RunNotFoundError, match="nobody"):
            session().ask("test", body)
    with pytest.raises(JupyterDDLError, match="speaks protocol 99"):
        session().ask("test", Hello(PROTOCOL_VERSION + 98))
    with pytest.raises(SpecError, match="0 <= MIN <= MAX"):
        cluster.adapt(3, 1)
    assert cluster.status().active_runs == ()
