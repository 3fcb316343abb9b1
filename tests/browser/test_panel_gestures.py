"""What one does with runs that are over: attach, export, copy, compare, by button and by menu."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from jupyter_ddl.recording.lines import read_recording
from tests.browser.lab_tools import (
    Lab,
    cell_at,
    look_at,
    open_notebook,
    run_cell,
    serious_findings,
    set_theme,
    take,
    view_at,
    wait_ready,
)
from tests.browser.panel_tools import (
    LOAD,
    card,
    run_page,
    run_row,
    search_cell,
    show_panel,
)

_NAME = "gestures.ipynb"
_SECOND, _ATTACH, _ATTACH_DAMAGED = 3, 4, 5
_CLIPBOARD = "() => navigator.clipboard.readText()"


def _tab(page: Page, name: str) -> None:
    page.locator(".lm-TabBar-tabLabel").get_by_text(name, exact=True).click()


def _menu(page: Page, target: Locator) -> Locator:
    """The entries of this package below the right button."""
    target.click(button="right")
    return page.locator(".lm-Menu-item[data-command^='jupyter-ddl:']")


def _saved(page: Page, press: Locator, folder: Path) -> Path:
    """What the browser downloads when a button or an entry is pressed."""
    with page.expect_download() as found:
        press.click()
    path = folder / found.value.suggested_filename
    found.value.save_as(path)
    return path


def test_runs_that_are_over_are_attached_exported_copied_and_compared(
    lab: Lab, page: Page, tmp_path: Path
) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.set_viewport_size({"width": 1300, "height": 1100})
    cells = (LOAD, "%cluster start -n 2 --name small", search_cell("first", 5, 3, 0.02))
    cells += (search_cell("second", 4, 3, 0.02), "%runs attach first", "%runs attach second")
    open_notebook(page, lab, _NAME, *cells)
    show_panel(page)
    for index in range(4):
        run_cell(page, index)
    expect(run_row(page, "second")).to_contain_text("complete")
    run_id = run_row(page, "first").get_attribute("data-run") or ""

    _attached_view_has_all(page)
    _buttons_of_a_page(page, run_id, tmp_path)
    _menus(page, run_id, tmp_path)
    _damaged_in_the_middle(page, lab)


def _attached_view_has_all(page: Page) -> None:
    run_cell(page, _ATTACH)
    view = view_at(page, _ATTACH)
    expect(view).to_have_attribute("data-state", "complete")
    expect(view.locator(".ddl-strand").first).to_be_attached()
    rows = view.get_by_label("Trials", exact=True).locator("tbody tr")
    expect(rows.filter(has_text="complete")).to_have_count(5)
    timeline = view.locator("details", has=page.get_by_text("Timeline", exact=True))
    timeline.locator("> summary").click()
    bars = timeline.locator(".ddl-history rect")
    expect(bars).to_have_count(5)
    bars.first.click()
    trial = view.locator("section.ddl-card")
    expect(trial).to_contain_text("complete")
    # JupyterLab has its own mind about lists of names in an output: a letter a line.
    heights = trial.locator("dt").evaluate_all("all => all.map(each => each.clientHeight)")
    assert len(heights) >= 4
    assert max(heights) < 30
    for theme in ("dark", "light"):
        set_theme(page, theme)
        take(view, f"gestures-attached-{theme}")
        assert serious_findings(page, ".jp-Notebook .ddl-live") == []


def _buttons_of_a_page(page: Page, run_id: str, folder: Path) -> None:
    run_page(page, "first")
    bar = page.locator(".jp-MainAreaWidget:not(.lm-mod-hidden) .jp-Toolbar")
    recording = _saved(page, bar.get_by_role("button", name="Export", exact=True), folder)
    assert recording.name == f"{run_id}.jsonl"
    assert read_recording(recording).head.run_id == run_id
    exported = _saved(page, bar.get_by_role("button", name="Export page"), folder)
    assert exported.name == f"{run_id}.html"
    assert "5 of 5 trials" in exported.read_text()
    bar.get_by_role("button", name="Copy attach cell").click()
    expect(page.locator(".Toastify__toast").last).to_contain_text("Copied")
    copied = page.evaluate(_CLIPBOARD)
    assert copied == f"%load_ext jupyter_ddl\n%runs attach {run_id}"
    bar.get_by_role("button", name="Compare…").click()
    dialog = page.locator(".jp-Dialog")
    options = dialog.locator("option").all_inner_texts()
    assert [run_id in text or "first" in text for text in options] == [False]
    assert serious_findings(page, ".jp-Dialog") == []
    dialog.get_by_role("button", name="OK").click()
    compared = page.locator(".jp-ddl-compared")
    expect(compared.get_by_role("img", name="acc: step")).to_be_visible()
    expect(compared.locator(".ddl-legend > span")).to_contain_text(["first", "second"])


def _menus(page: Page, run_id: str, folder: Path) -> None:
    entries = _menu(page, run_row(page, "first"))
    expect(entries).to_contain_text(
        ["Open", "Compare with…", "Insert code", "Copy", "Export", "Export page", "TensorBoard…"]
    )
    take(page, "gestures-menu-of-a-run")
    page.evaluate("() => navigator.clipboard.writeText('nothing')")
    entries.filter(has_text="Copy attach cell").click()
    page.wait_for_function(
        "async wanted => (await navigator.clipboard.readText()).endsWith(wanted)", arg=run_id
    )
    entry = _menu(page, run_row(page, "second")).filter(has_text="Export page")
    assert "4 of 4 trials" in _saved(page, entry, folder).read_text()
    entries = _menu(page, card(page, "small"))
    expect(entries).to_contain_text(["Open", "Use in new notebooks…", "Scale…", "Stop…"])
    entries.first.click()
    expect(page.locator(".jp-ddl-page:visible .jp-ddl-log")).to_be_visible()


def _damaged_in_the_middle(page: Page, lab: Lab) -> None:
    """A cell that attaches to such a record, and the one that has shown its run so far."""
    run_id = run_row(page, "second").get_attribute("data-run")
    (ledger,) = lab.home.root.rglob(f"{run_id}/ledger.ddl")
    whole = ledger.read_bytes()
    middle = len(whole) // 2
    _tab(page, _NAME)
    ledger.write_bytes(whole[:middle] + b"\x00" * 40 + whole[middle + 40 :])
    output = run_cell(page, _ATTACH_DAMAGED)
    expect(output).to_contain_text("is damaged")
    expect(output).to_contain_text(f"%runs repair {run_id}")
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.reload()
    wait_ready(page)
    output = cell_at(page, _SECOND).locator(".jp-Cell-outputArea")
    alert = look_at(cell_at(page, _SECOND), "[role=alert]")
    expect(alert).to_contain_text("The record can't be read")
    expect(alert).to_contain_text(f"`%runs repair {run_id}` keeps the")
    for name in ("go on", "Resume", "Stop"):
        expect(output.get_by_role("button", name=name)).to_have_count(0)
    take(page, "gestures-damaged")
