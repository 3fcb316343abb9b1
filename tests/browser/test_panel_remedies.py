"""All that the panel offers to do is pressed once, in one session on a real cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.browser.lab_tools import (
    Lab,
    open_notebook,
    press_twice,
    run_cell,
    serious_findings,
    set_theme,
    take,
    wait_done,
)
from tests.browser.panel_tools import (
    LOAD,
    card,
    connected,
    execute,
    run_row,
    search_cell,
    show_panel,
)
from tests.tiny_wheels import install, make_wheel
from tests.until import PATIENCE_S, until

_NAME = "remedies.ipynb"
_GROUP, _FAILS, _TINY, _SYNC, _WAITS, _HANGS = range(2, 8)
"""Cells by their places; the one that syncs is added by the panel."""


def _cells(packages: Path, cure: Path) -> list[str]:
    return [
        f"import os, sys\nsys.path.insert(0, {str(packages)!r})\n"
        f"os.environ['PYTHONPATH'] = {str(packages)!r}\n"
        f"os.environ['JUPYTER_DDL_PREWARM'] = 'ddltiny'\n{LOAD}",
        "%cluster start -n 1 --name small",
        "%%distribute run -n 1 --name warm\nlevel = rank()",
        "%%distribute search --metric acc --trials 2 --max-failures 1 --name fails\n"
        "from pathlib import Path\n"
        "x = uniform(0.0, 1.0)\n"
        f"acc = x if Path({str(cure)!r}).exists() else 1 / 0\n",
        "%%distribute map --over item in [1] --name tiny\nimport ddltiny\nddltiny.__version__",
        search_cell("waits", 2, 1),
        "%%distribute ddp -n 1 --hang-timeout 3 --max-restarts 1000 --name hangs\n"
        "import time\nreport(step=0, loss=1.0)\ntime.sleep(600)",
    ]


def _begin(page: Page, index: int, *, wait: bool = False) -> None:
    page.locator(".lm-TabBar-tabLabel", has_text=_NAME).click()
    run_cell(page, index, wait=wait)


def _finish(page: Page, index: int) -> None:
    page.locator(".lm-TabBar-tabLabel", has_text=_NAME).click()
    wait_done(page, index)


def _page_of(page: Page, name: str) -> Locator:
    """Open the page of a run beside those that are open; returns the live view in it."""
    row = run_row(page, name)
    run_id = row.get_attribute("data-run")
    row.click()
    found = page.locator(f".jp-ddl-run-view .ddl-live[data-run='{run_id}']")
    expect(found).to_be_visible()
    return found


def _press(view: Locator, name: str | re.Pattern[str]) -> None:
    view.get_by_role("button", name=name).first.press("Enter")


def test_what_the_panel_offers_does_what_it_says(lab: Lab, page: Page, tmp_path: Path) -> None:
    packages, cure = tmp_path / "packages", tmp_path / "cure"
    install(make_wheel(tmp_path, "ddltiny", "1.0"), packages)
    page.set_viewport_size({"width": 1300, "height": 1000})
    open_notebook(page, lab, _NAME, *_cells(packages, cure))
    show_panel(page)
    for index in (0, 1, _GROUP):
        run_cell(page, index)
    dialog = page.locator(".jp-Dialog")

    # A group of ranks that stay keeps the only slot: its page shows it, and a search waits.
    group = _page_of(page, "warm")
    expect(group).to_contain_text("level = rank()")
    expect(group).not_to_contain_text("is not active")
    _begin(page, _FAILS)
    expect(run_row(page, "fails")).to_contain_text("waiting")
    fails = _page_of(page, "fails")
    expect(fails).to_contain_text("Every slot is kept")
    take(page, "remedies-waiting")
    release = fails.get_by_role("button", name=re.compile("^Release slots of")).first
    press_twice(release, "Really end ")
    expect(run_row(page, "fails")).to_contain_text("failed")
    expect(run_row(page, "warm")).not_to_contain_text("running")
    _finish(page, _FAILS)

    # A run that has failed is resumed: all of its tries are made again.
    cure.touch()
    fails = _page_of(page, "fails")
    take(page, "remedies-failed")
    _press(fails, re.compile("^Resume"))
    expect(run_row(page, "fails")).to_contain_text("complete")

    # What a notebook uses has changed behind the workers: they are synced.
    install(make_wheel(tmp_path, "ddltiny", "2.0"), packages)
    _begin(page, _TINY, wait=True)
    small = card(page, "small")
    expect(small).to_contain_text("drift")
    _press(small, "Sync environment…")
    expect(dialog).to_contain_text("Sync the environment of cluster small?")
    assert serious_findings(page, ".jp-Dialog") == []
    dialog.get_by_role("button", name="Sync").click()
    expect(small).to_contain_text("same")
    _finish(page, _SYNC)

    # The slot is kept again, and another one is added.
    _begin(page, _GROUP, wait=True)
    _begin(page, _WAITS)
    waits = _page_of(page, "waits")
    _press(waits, "Add workers…")
    assert serious_findings(page, ".jp-Dialog") == []
    dialog.locator("input").fill("2")
    dialog.get_by_role("button", name="Scale").click()
    expect(run_row(page, "waits")).to_contain_text("complete")
    _finish(page, _WAITS)

    # A hang shows where it stands.
    _begin(page, _HANGS)
    hangs = _page_of(page, "hangs")
    _press(hangs, "Show stacks")
    expect(hangs.locator(".ddl-stacks section").first).to_contain_text("time.sleep(600)")
    _links_ask_before_they_act(page, dialog)
    execute(page, "jupyter-ddl:stop-run")
    _stop_chosen(page, dialog, "hangs")
    expect(run_row(page, "hangs")).not_to_contain_text("running")
    _finish(page, _HANGS)

    _compare_and_reload(page, lab)
    _show_files_and_delete(page, dialog)
    _lists_scroll(page)


def _links_ask_before_they_act(page: Page, dialog: Locator) -> None:
    """Texts and outputs may hold buttons for JupyterLab's commands, whoever has written them."""
    run_id = run_row(page, "hangs").get_attribute("data-run")
    _link(page, "jupyter-ddl:stop-run", {"runId": run_id})
    expect(dialog).to_contain_text(f"Stop run {run_id}?")
    dialog.get_by_role("button", name="Cancel").click()
    for args in ({"name": "small"}, {}):  # the only one that there is
        _link(page, "jupyter-ddl:use-cluster", args)
        expect(dialog).to_contain_text("Use cluster small in new notebooks?")
        dialog.get_by_role("button", name="Cancel").click()
    # What is no name at all is not taken: one is asked which.
    _link(page, "jupyter-ddl:attach-run", {"runId": "x\nimport os"})
    expect(dialog.locator("select")).to_be_visible()
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    expect(run_row(page, "hangs")).to_contain_text("running")
    expect(page.locator(".jp-toast-message")).to_have_count(0)


def _link(page: Page, command: str, args: dict[str, Any]) -> None:
    """Press a button that stands in the notebook as an output's would."""
    page.evaluate(
        """([command, args]) => {
          const button = document.createElement("button");
          button.dataset.commandlinkerCommand = command;
          button.dataset.commandlinkerArgs = JSON.stringify(args);
          document.querySelector(".jp-Notebook").append(button);
          button.click();
          button.remove();
        }""",
        [command, args],
    )


def _stop_chosen(page: Page, dialog: Locator, name: str) -> None:
    """Choose a run of those that are active, and confirm."""
    choice = dialog.locator("select")
    choice.select_option(
        label=next(t for t in choice.locator("option").all_inner_texts() if name in t)
    )
    dialog.get_by_role("button", name="OK").click()
    expect(dialog).to_contain_text("Stop run")
    dialog.get_by_role("button", name="Stop").click()


def _compare_and_reload(page: Page, lab: Lab) -> None:
    for name in ("fails", "waits"):
        page.get_by_role("checkbox", name=f"Compare {name}").check()
    page.locator("#jupyter-ddl-panel").get_by_role("button", name="Compare", exact=True).click()
    compared = page.locator(".jp-ddl-compared")
    expect(compared).to_contain_text("trials")
    expect(compared.get_by_role("img", name="acc: step")).to_be_visible()
    expect(compared.get_by_role("status").last).to_contain_text("fails: No trial has reported")
    until(
        lambda: "jupyter-ddl-compared" in json.dumps(lab.ask("lab/api/workspaces")),
        PATIENCE_S,
        "a layout",
    )
    page.reload()
    expect(compared).to_contain_text("trials")
    connected(page)
    for theme in ("dark", "light"):
        set_theme(page, theme)
        take(page, f"remedies-compared-{theme}")
        assert serious_findings(page, ".jp-ddl-compared") == []
        assert serious_findings(page, "#jupyter-ddl-panel") == []
    execute(page, "launcher:create")
    launcher = page.locator(".jp-LauncherCard", has_text="Show clusters and runs")
    expect(launcher).to_be_visible()
    assert serious_findings(page, ".jp-LauncherCard[title='Show clusters and runs']") == []


def _show_files_and_delete(page: Page, dialog: Locator) -> None:
    _page_of(page, "waits")
    toolbar = page.locator(".jp-MainAreaWidget:not(.lm-mod-hidden) .jp-Toolbar")
    for theme in ("dark", "light"):
        set_theme(page, theme)
        assert serious_findings(page, ".jp-ddl-run-view:not(.lm-mod-hidden)") == []
    toolbar.get_by_role("button", name="TensorBoard…").click()
    expect(dialog).to_contain_text("Event files are in")
    assert serious_findings(page, ".jp-Dialog") == []
    dialog.get_by_role("button", name="Close").click()
    toolbar.get_by_role("button", name="Delete…").click()
    expect(dialog).to_contain_text("Delete run waits?")
    assert serious_findings(page, ".jp-Dialog") == []
    dialog.get_by_role("button", name="Delete").click()
    expect(run_row(page, "waits")).to_have_count(0)
    expect(page.locator(".jp-ddl-compared")).to_have_count(0)


def _lists_scroll(page: Page) -> None:
    page.set_viewport_size({"width": 320, "height": 480})
    take(page, "remedies-320")
    lists = page.locator("#jupyter-ddl-panel .jp-ddl-scrolls").last
    lists.evaluate("each => each.scrollTo(0, each.scrollHeight)")
    assert lists.evaluate("each => each.scrollTop > 0")
    expect(page.locator("#jupyter-ddl-panel .jp-ddl-run-line").last).to_be_in_viewport()
