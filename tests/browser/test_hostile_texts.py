"""300 hostile payloads in every field that the live view draws: all of them are only text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Page

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.snapshot import OperationRow, RunSnapshot, TraceRow
from jupyter_ddl.protocol.telemetry import ClusterTelemetry, GpuSample, WorkerHistory, WorkerSample
from jupyter_ddl.protocol.view_messages import LogPart, RunView, TelemetryView
from jupyter_ddl.views.bundle import LIVE_DIR, join_modules, live_css
from tests.unit.views.view_payloads import PAYLOADS

_ENTRY = """import { mount } from "./index.js";
const saveTrace = (...given) => { window.saved = given; };
export default (element, channel) => mount(element, channel, { host: { saveTrace } });
"""
_PAGE = """async ([source, css]) => {
  window.hits = 0;
  window.alert = window.fetch = () => { window.hits += 1; };
  const style = document.createElement('style');
  style.textContent = css;
  document.head.append(style);
  const url = URL.createObjectURL(new Blob([source], {type: 'text/javascript'}));
  const module = await import(url);
  const callbacks = new Set();
  window.deliver = (message) => callbacks.forEach((each) => each(message));
  window.errors = [];
  window.addEventListener('error', (event) => window.errors.push(String(event.message)));
  window.log = null;
  const channel = {
    send: (message) => {
      if (message.kind === 'get_log') window.deliver({...window.log, id: message.id});
    },
    subscribe: (callback) => { callbacks.add(callback); return () => callbacks.delete(callback); },
  };
  module.default(document.getElementById('view'), channel);
}"""
_TRY = """async ([message, payloads, log]) => {
  const free = new Set(['params', 'metrics', 'series', 'gpu', 'gpu_memory']);
  const fixed = new Set(['kind', 'state', 'verb', 'mode', 'run_id', 'phase']);
  const replaced = (value, payload, key) => {
    if (Array.isArray(value)) return value.map((each) => replaced(each, payload, key));
    if (value !== null && typeof value === 'object') {
      return Object.fromEntries(Object.entries(value).map(([name, inner]) =>
        [free.has(key) ? name + payload : name, replaced(inner, payload, name)]));
    }
    return typeof value === 'string' && !fixed.has(key) ? payload : value;
  };
  const shape = () => [...document.querySelectorAll('#view *')]
    .map((each) => each.tagName + ' ' + [...each.attributes].map((a) => a.name).sort().join())
    .filter((each) => each !== 'MARK ').join('|');
  const show = async (payload) => {
    window.log = {...log, lines: [payload, payload], path: payload};
    window.deliver(replaced(message, payload, ''));
    await new Promise((done) => requestAnimationFrame(done));
    return shape();
  };
  const plain = await show('plain');
  const changed = [];
  for (const payload of payloads) if (await show(payload) !== plain) changed.push(payload);
  return {changed, n: plain.split('|').length};
}"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The view for a page without any notebook."""
    folder = tmp_path_factory.mktemp("live")
    for path in LIVE_DIR.glob("*.js"):
        (folder / path.name).write_text(path.read_text())
    (folder / "page.js").write_text(_ENTRY)
    return join_modules(folder, "page.js")


@pytest.fixture
def blank(page: Page, source: str) -> Iterator[Page]:
    """A page with nothing but the view."""
    page.set_content("<!doctype html><title>t</title><div id='view'></div>")
    page.evaluate(_PAGE, [source, live_css()])
    yield page
    assert page.evaluate("window.errors") == []


def as_json(message: Any) -> Any:
    return json.loads(msgspec.json.encode(message))


def messages() -> list[Any]:
    """A search, a group and telemetry, with something in every field."""
    search = msgspec.structs.replace(
        samples.search(),
        failure=samples.VALUE_ERROR,
        failed_trial=3,
        notices=("a", "b"),
        paused="p",
        reason="r",
    )
    gpu = GpuSample("GPU-1", 0, "A100", 0.5, 1, 2, 3.0, 4.0, state="")
    worker = WorkerSample("w0", "host", 1.0, 0.5, 2.0, 1, 2, gpus=(gpu,), gpu_state="n/a: x")
    bare = msgspec.structs.replace(worker, worker="w1", gpus=())
    history = WorkerHistory("w0", (1.0, 2.0), (0.1, 0.2), (1, 2), {"GPU-1": (0.1, 0.9)})
    telemetry = ClusterTelemetry(1, 1.0, (worker, bare), (history,), ("idle",), 2, 0.5, 0.5)
    return [
        as_json(RunView(1, 1e9, search)),
        as_json(TelemetryView(2, "local", telemetry)),
        as_json(RunView(3, 1e9, profiled())),
    ]


def profiled() -> RunSnapshot:
    """A group whose steps were recorded."""
    return msgspec.structs.replace(
        samples.group(),
        operations=(OperationRow("aten::mm", 0.75, 0.0015, 0.0, 6.0),),
        traces=(TraceRow(0, 1, "trial-0-a1-r1.json.gz", 2048),),
    )


def test_payloads_are_shown_as_text_and_change_no_element(blank: Page) -> None:
    # No JSON can carry half a character.
    payloads = [each for each in PAYLOADS if "\ud800" not in each]
    assert len(payloads) >= 300
    log = as_json(LogPart(1, "r", (), 10))
    for message in messages():
        tried = blank.evaluate(_TRY, [message, payloads[:1], log])
        is_search = message["kind"] == "run" and message["snapshot"]["verb"] == "search"
        if is_search:
            blank.get_by_text("Output", exact=True).click()
            blank.get_by_label("Mark this text in the lines shown").fill("<")
        tried = blank.evaluate(_TRY, [message, payloads[:: 1 if is_search else 4], log])
        assert tried["changed"] == []
        assert tried["n"] > 60
    assert blank.evaluate("window.hits") == 0
    assert blank.evaluate("document.scripts.length") == 0
    assert blank.evaluate("document.querySelectorAll('iframe, img, object').length") == 0


def test_a_payload_can_be_read(blank: Page) -> None:
    payload = "<img src=x onerror=alert(1)>"
    blank.evaluate(_TRY, [messages()[0], [payload], as_json(LogPart(1, "r", (), 10))])
    assert payload in blank.locator(".ddl-title").inner_text()
    assert payload in blank.locator(".ddl-notices.ddl-muted").inner_text()


def test_the_costliest_operations_stand_there_and_a_trace_is_asked_for(blank: Page) -> None:
    shown = profiled()
    blank.evaluate("(message) => window.deliver(message)", as_json(RunView(1, 1e9, shown)))
    cells = blank.get_by_role("region", name="Operations").locator("tbody td:visible")
    assert cells.all_inner_texts() == ["aten::mm", "75 %", "1.5", "6"]
    blank.get_by_role("button", name="Trace of rank 1").click()
    assert blank.evaluate("window.saved") == [shown.run_id, "trial-0-a1-r1.json.gz"]
    without = as_json(RunView(2, 1e9, msgspec.structs.replace(samples.group(), seq=shown.seq + 1)))
    blank.evaluate("(message) => window.deliver(message)", without)
    blank.get_by_role("region", name="Operations").wait_for(state="hidden")
