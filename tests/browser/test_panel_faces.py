"""What the panel draws, whatever it is told: text stays text, and a thousand workers are many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from playwright.sync_api import Page, expect

from jupyter_ddl.protocol import view_messages as say
from jupyter_ddl.protocol.verb import load_verb
from tests.browser.lab_tools import Lab, open_notebook, serious_findings, set_theme, take
from tests.browser.panel_script import ScriptedServer, cluster, gpu_telemetry, run_line
from tests.browser.panel_tools import card, execute, run_row
from tests.until import until

_GOLDEN = Path(__file__).resolve().parents[1] / "golden"
_HARD_TEXT = 'it\'s <b>"α" & </script>'
_PAYLOADS = (
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    "<svg onload=window.hit=1>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    '"><details open ontoggle=window.hit=1>',
    "<a href=javascript:window.hit=1>here</a>",
    "[here](javascript:window.hit=1)",
    "![here](x' onerror='window.hit=1)",
    "<style>@import 'javascript:window.hit=1';*{display:none}</style>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    "{{constructor.constructor('window.hit=1')()}}",
    "${window.hit=1}",
    "\u202egnp.exe<video><source onerror=window.hit=1>",
    "<body onload=window.hit=1><input autofocus onfocus=window.hit=1>",
)
_FOREIGN = (
    "() => document.querySelectorAll(':is(.jp-ddl-panel, .jp-ddl-page, .jp-ddl-status,"
    " .jp-Dialog, .Toastify) :is(script, img, iframe, video, style, math, details,"
    " a[href^=javascript])').length"
)


def _with_text(kind: str, text: str) -> Any:
    """The golden message of a kind with ``text`` in every field that takes free text."""
    golden = json.loads((_GOLDEN / f"{kind}.json").read_text())["full"]
    encoded = json.dumps(golden).replace(json.dumps(_HARD_TEXT)[1:-1], json.dumps(text)[1:-1])
    return msgspec.json.decode(encoded, type=say.ToBrowser)


def test_text_that_tries_to_be_a_program_is_shown_as_text(lab: Lab, page: Page) -> None:
    shown = {"text": ""}

    def lists() -> list[say.ToBrowser]:
        text = shown["text"]
        telemetry = _with_text("telemetry", text)
        clusters = _with_text("clusters", text)
        name = clusters.clusters[0].name
        # The second examples are sparse: they hold no text.
        measured = msgspec.structs.replace(
            telemetry.telemetry, workers=telemetry.telemetry.workers[:1]
        )
        telemetry = msgspec.structs.replace(telemetry, run_id="", cluster=name, telemetry=measured)
        clusters = msgspec.structs.replace(clusters, clusters=clusters.clusters[:1])
        runs = _with_text("runs", text)
        runs = msgspec.structs.replace(runs, runs=runs.runs[:1])
        return [clusters, runs, telemetry]

    server = ScriptedServer(page, lists)
    server.answers["get_cluster_log"] = lambda body: msgspec.structs.replace(
        _with_text("cluster_log", shown["text"]), id=body["id"]
    )
    server.answers["stop_cluster"] = lambda body: msgspec.structs.replace(
        _with_text("denied", shown["text"]), id=body["id"]
    )
    open_notebook(page, lab, "text.ipynb", "print(6 * 7)")
    execute(page, "jupyter-ddl:show-panel")
    panel = page.locator("#jupyter-ddl-panel")
    for text in _PAYLOADS:
        shown["text"] = text
        server.say_all()
        expect(panel.locator(".jp-ddl-run .jp-ddl-name")).to_have_text(f"name {text}")
        expect(panel.locator(".jp-ddl-card button.jp-ddl-name")).to_have_text(f"name {text}")
        panel.locator(".jp-ddl-card button.jp-ddl-name").click()
        view = page.locator(".jp-ddl-page:visible")
        expect(view.locator(".jp-ddl-log pre")).to_contain_text(f"lines {text}")
        expect(view.locator(".jp-ddl-verdict").first).to_have_text(f"verdicts {text}")
        box = view.get_by_role("application")
        box.focus()
        box.press("End")
        box.press("End")
        expect(view.locator(".jp-ddl-heat-text")).to_contain_text(text)
        panel.locator(".jp-ddl-card").first.locator(".jp-ddl-iconButton").last.click()
        dialog = page.locator(".jp-Dialog")
        expect(dialog).to_contain_text(text)
        dialog.get_by_role("button", name="Stop").click()
        expect(page.locator(".Toastify__toast").last).to_contain_text(f"text {text}"[:60])
        execute(page, "application:close")
        expect(view).to_have_count(0)
    assert page.evaluate("() => window.hit") is None
    assert page.evaluate(_FOREIGN) == 0


def test_of_a_thousand_workers_those_in_sight_are_drawn(lab: Lab, page: Page) -> None:
    busy = cluster("train", 1000, n_busy=900, active=("r1",))
    server = ScriptedServer(
        page,
        lambda: [
            say.ClusterList(seq=0, at_s=0.0, clusters=(busy,)),
            gpu_telemetry("train", 1000, 0),
        ],
    )
    open_notebook(page, lab, "many.ipynb", "print(6 * 7)")
    execute(page, "jupyter-ddl:show-panel")
    card(page, "train").get_by_role("button", name="train", exact=True).click()
    box = page.get_by_role("application")
    label = "CPU of 1000 cells; arrow keys move, Enter shows the log"
    expect(box).to_have_attribute("aria-label", label)
    height = box.evaluate("box => [box.scrollHeight, box.querySelector('canvas').height]")
    assert height[0] > height[1]
    box.focus()
    box.press("End")
    expect(page.locator(".jp-ddl-heat-text")).to_contain_text("w0 on node-0")
    box.press("End")
    expect(page.locator(".jp-ddl-heat-text")).to_contain_text("w999 on node-249")
    assert box.evaluate("box => box.scrollTop") > 0
    until(lambda: _has_colour(page), 10, "cells at the end of the field")
    server.say(gpu_telemetry("train", 1000, 0, phase=0.5))
    box.press("Home")
    expect(page.locator(".jp-ddl-heat-text")).to_contain_text("w0 on node-0")


def _has_colour(page: Page) -> bool:
    """Whether something is drawn where the last row of cells is."""
    return bool(
        page.evaluate(
            "() => { const c = document.querySelector('.jp-ddl-heat canvas');"
            " const d = c.getContext('2d').getImageData(0, c.height - 10, 40, 8).data;"
            " return d.some(value => value > 0); }"
        )
    )


def test_the_panel_reads_well_narrow_and_wide_light_and_dark(lab: Lab, page: Page) -> None:
    runs = (
        run_line("r1121-a1b2c", "width and depth", "running"),
        run_line(
            "r1121-d3e4f",
            "resnet, four ranks",
            "running",
            verb="ddp",
            can=load_verb("ddp").can,
            nouns=load_verb("ddp").nouns,
            n_trials=1,
            best=None,
        ),
        run_line(
            "r1121-g5h6i", "a name that is too long for the width of a side panel", "complete"
        ),
        run_line("r1121-j7k8l", "learning rates", "failed", best=None, n_finished=3),
        run_line(
            "r1121-m9n0p",
            "prepare images",
            "cancelled",
            verb="map",
            can=load_verb("map").can,
            nouns=load_verb("map").nouns,
            best=None,
        ),
    )
    train = cluster("train", 8, n_busy=6, active=("r1121-a1b2c", "r1121-d3e4f"))
    spare = cluster("spare", 2)
    elsewhere = (
        say.ClusterElsewhere("kube", "namespace lab", "elsewhere, connecting …"),
        say.ClusterElsewhere("", "", "clusters of backend site are not listed: it is away"),
    )
    server = ScriptedServer(
        page,
        lambda: [
            say.ClusterList(
                seq=0,
                at_s=runs[0].created_at_s + 320,
                clusters=(train, spare),
                elsewhere=elsewhere,
            ),
            say.RunList(seq=0, at_s=runs[0].created_at_s + 320, runs=runs),
            gpu_telemetry("train", 8, 4),
            gpu_telemetry("spare", 2, 0),
        ],
    )
    server.answers["get_cluster_log"] = lambda body: say.ClusterLogPart(
        body["id"],
        "train",
        ("ready; resumed runs: none", "w2: rank of run r1121-d3e4f started on GPU 1"),
    )
    page.set_viewport_size({"width": 1200, "height": 760})
    open_notebook(page, lab, "look.ipynb", "print(6 * 7)")
    execute(page, "jupyter-ddl:show-panel")
    expect(run_row(page, "width and depth")).to_contain_text("25/40")
    expect(page.locator(".jp-ddl-status-button")).to_contain_text("2 runs · 29/32 GPUs")
    card(page, "train").get_by_role("button", name="train", exact=True).click()
    page.get_by_role("radio", name="GPU", exact=True).click()
    server.say(gpu_telemetry("train", 8, 4, phase=0.3))
    expect(page.locator(".jp-ddl-log pre")).to_contain_text("ready")
    panel = page.locator("#jupyter-ddl-panel")
    expect(panel.locator(".jp-ddl-card").nth(2)).to_contain_text("namespace lab")
    expect(panel.locator(".jp-ddl-card").nth(2)).to_contain_text("elsewhere, connecting …")
    expect(panel.locator(".jp-ddl-card").nth(3)).to_have_text(elsewhere[1].text)
    for theme in ("light", "dark"):
        set_theme(page, theme)
        take(panel, f"panel-narrow-{theme}")
        take(page, f"panel-wide-{theme}")
        assert serious_findings(page, "#jupyter-ddl-panel") == []
        assert serious_findings(page, ".jp-ddl-page:not(.lm-mod-hidden)") == []
    assert not panel.evaluate("panel => panel.scrollWidth > panel.clientWidth")
