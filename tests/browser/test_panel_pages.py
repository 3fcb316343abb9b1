"""Pages of runs and clusters: what is wrong has buttons, and everybody can use them."""

from __future__ import annotations

from typing import Any

import msgspec
from playwright.sync_api import Locator, Page, expect

from jupyter_ddl.protocol import view_messages as say
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.protocol.verb import load_verb
from tests.browser.lab_tools import (
    Lab,
    cell_at,
    open_notebook,
    run_cell,
    serious_findings,
    set_theme,
    take,
)
from tests.browser.panel_script import ScriptedServer, cluster, gpu_telemetry, run_line
from tests.browser.panel_tools import (
    card,
    execute,
)
from tests.unit.views import view_samples
from tests.until import until

_HANG = "r1121-hangs"
_ALONE = "r1121-alone"
_SHOWS = f"""\
from IPython.display import display

run = {{"application/vnd.jupyter-ddl.run+json": {{"run_id": "{_HANG}"}}, "text/plain": "a run"}}
display(run, raw=True)
"""


def _hung() -> RunSnapshot:
    shot = view_samples.group()
    verdict = msgspec.structs.replace(shot.hang, stacks_file="stacks/0-a1")
    return msgspec.structs.replace(
        shot, run_id=_HANG, name="hangs", state="failed", hang=verdict, checkpoint_step=400
    )


def _alone() -> RunSnapshot:
    return msgspec.structs.replace(
        view_samples.search(),
        run_id=_ALONE,
        name="alone",
        state="running",
        driver="none",
        paused="nothing drives this run now: cluster train is not running",
    )


def _stacks(body: dict[str, Any]) -> say.StacksPart:
    at = '  File "In [7]", line 4 in <module>\n    if rank() == 1: <b>sleep</b>(1e9)'
    ranks = (say.RankStacks(2, True, at), say.RankStacks(0, False, "  elsewhere"))
    return say.StacksPart(body["id"], body["run_id"], ranks, 4)


def _scripted(page: Page) -> ScriptedServer:
    now_s = view_samples.NOW_S
    ddp = load_verb("ddp")
    runs = (
        run_line(_HANG, "hangs", "failed", verb="ddp", can=ddp.can, nouns=ddp.nouns, best=None),
        run_line(_ALONE, "alone", "running", live=False),
    )
    two = (cluster("train", 4, n_busy=3), cluster("spare", 2))

    def lists() -> list[say.ToBrowser]:
        return [
            say.ClusterList(seq=0, at_s=now_s, clusters=two, chosen="spare"),
            say.RunList(seq=0, at_s=now_s, runs=runs),
            say.RunView(seq=0, at_s=now_s, snapshot=_hung()),
            say.RunView(seq=0, at_s=now_s, snapshot=_alone()),
            gpu_telemetry("train", 4, 1),
        ]

    server = ScriptedServer(page, lists)
    server.answers["get_stacks"] = _stacks
    server.answers["compare_runs"] = lambda body: say.ComparedPart(
        body["id"], "<div><table><tr><td>lr</td><td><b>0.1</b></td></tr></table></div>"
    )
    return server


def _asked(server: ScriptedServer, kind: str) -> list[dict[str, Any]]:
    return [each for each in server.received if each["kind"] == kind]


def _open_form(page: Page, panel: Locator) -> Locator:
    panel.get_by_role("button", name="Start a cluster").first.click()
    form = panel.get_by_role("form", name="Start a cluster")
    form.get_by_label("Backend").select_option("kube")
    return form


def test_what_is_wrong_has_buttons_and_axe_finds_nothing_serious(lab: Lab, page: Page) -> None:
    server = _scripted(page)
    page.set_viewport_size({"width": 1300, "height": 1100})
    open_notebook(page, lab, "pages.ipynb", _SHOWS)
    execute(page, "jupyter-ddl:show-panel")
    panel = page.locator("#jupyter-ddl-panel")

    # A form has the fields of the backend that is chosen, and says what it would start.
    form = _open_form(page, panel)
    expect(form.get_by_label("Env", exact=False).first).to_be_visible()
    expect(form).to_contain_text("Starts pods on Kubernetes")
    expect(form).to_contain_text("Not available here: ")
    expect(form.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    take(panel, "panel-form-kube")
    form.get_by_label("Backend").select_option("dask")
    expect(form).to_contain_text("Starts nothing: uses a Dask scheduler that is already running")
    form.get_by_label("Name", exact=True).fill("theirs")
    form.locator("input[name=address]").fill("tls://10.0.0.1:8786")
    form.get_by_role("button", name="Connect").press("Enter")
    expect(form).to_be_hidden()
    assert _asked(server, "start_cluster")[-1]["options"] == ["tls://10.0.0.1:8786"]

    expect(card(page, "spare")).to_contain_text("used by new notebooks")
    card(page, "train").get_by_role("button", name="Use in new notebooks").press("Enter")
    until(lambda: _asked(server, "use_cluster") != [], 10, "the choice")

    # A hang: stacks in place, and a way on; its page is opened from the cell.
    run_cell(page, 0)
    in_cell = cell_at(page, 0).locator(".jp-ddl-cell .ddl-live")
    expect(in_cell).to_contain_text("Hang.")
    for theme in ("dark", "light"):
        set_theme(page, theme)
        assert serious_findings(page, ".jp-ddl-cell") == []
    in_cell.get_by_role("button", name="Open run page").press("Enter")
    hung = page.locator(".jp-ddl-run-view:not(.lm-mod-hidden) .ddl-live[data-run]")
    hung.get_by_role("button", name="Show stacks").press("Enter")
    blamed = hung.locator(".ddl-stacks section").first
    expect(blamed).to_contain_text("Rank 2: the others wait for it")
    expect(blamed).to_contain_text("if rank() == 1: <b>sleep</b>(1e9)")
    hung.get_by_role("button", name="Resume from step 400").press("Enter")
    until(lambda: _asked(server, "resume_run") != [], 10, "the wish to resume")
    assert _asked(server, "resume_run")[0]["run_id"] == _HANG

    for theme in ("light", "dark"):
        set_theme(page, theme)
        take(page, f"page-of-a-hang-{theme}")
        assert serious_findings(page, "#jupyter-ddl-panel") == []
        assert serious_findings(page, ".jp-ddl-run-view") == []
