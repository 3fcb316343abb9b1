"""The page plays by itself: two scripts that its policy names, no address, no text of the run."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace
from simulate_runs import FOLDER

from jupyter_ddl.errors import RecordingError
from jupyter_ddl.protocol.events import Notice, RunSubmitted
from jupyter_ddl.protocol.run import Provenance
from jupyter_ddl.recording.lines import Fact, Recording
from jupyter_ddl.recording.page import page_html
from jupyter_ddl.recording.show import replay
from jupyter_ddl.recording.timeline import MAX_TIMELINE_BYTES
from jupyter_ddl.recording.write import head_of, write_recording
from tests.unit.ledger.event_makers import search_spec, started, submitted, twenty_events
from tests.unit.views.view_payloads import PAYLOADS


class Elements(HTMLParser):
    """Tags with their attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def page_of(text: str = "plain") -> str:
    """A page of a run in which this text stands wherever texts may."""
    spec = search_spec(name=text, provenance=Provenance(line=text, cell=f"x = 1\n{text}"))
    facts: list[Fact] = [RunSubmitted(spec, 1000.0), started(), Notice(1002.0, text)]
    recording = Recording(head_of(facts, "recorded", (text,)), tuple(facts))
    return page_html(recording)


def test_the_policy_allows_the_loader_what_it_unpacks_and_no_address() -> None:
    page = page_of()
    elements = Elements(page)
    (policy,) = [
        attrs["content"] or ""
        for tag, attrs in elements.tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    _, packed, loader = elements.scripts
    scripts = [loader.encode(), gzip.decompress(base64.b64decode(packed))]
    digests = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts]
    assert rules == {
        "default-src": "'none'",
        "script-src": " ".join(f"'sha256-{digest}'" for digest in digests),
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert scripts[1].endswith(b"$replay_page.$default();\n")


def test_nothing_is_fetched() -> None:
    page = page_of()
    whole = page + gzip.decompress(base64.b64decode(Elements(page).scripts[1])).decode()
    outside = re.sub(r"^ +/?\*.*$", "", whole.replace("http://www.w3.org/2000/svg", ""), flags=re.M)
    assert re.findall(r"https?:|//\w+\.\w|url\((?!data)|@import|import\(|fetch\(", outside) == []
    for _, attrs in Elements(page).tags:
        assert not {"href", "srcset", "action", "background"} & attrs.keys()
        assert (attrs.get("src") or "data:").startswith("data:")


def test_the_timeline_in_the_page_is_the_recording() -> None:
    timeline = json.loads(gzip.decompress(base64.b64decode(Elements(page_of("a name")).scripts[0])))
    assert (timeline["origin"], timeline["run_id"]) == ("recorded", "r1")
    assert timeline["frames"][0][1]["snapshot"][0]["name"] == "a name"


def test_hostile_texts_change_no_element() -> None:
    plain = [(tag, sorted(attrs)) for tag, attrs in Elements(page_of()).tags]
    for payload in PAYLOADS[::4]:
        elements = Elements(page_of(payload))
        assert [(tag, sorted(attrs)) for tag, attrs in elements.tags] == plain, payload
        assert len(elements.scripts) == 3


def test_without_scripts_the_end_of_the_run_is_shown() -> None:
    recording = Recording(head_of(twenty_events(), "simulated"), tuple(twenty_events()))
    page = page_html(recording)
    assert "A simulated run: no cluster has executed it." in page
    assert 'aria-label="Run r1, stopping…"' in page
    assert "data-speed" in page


def test_a_page_is_small_whatever_the_run() -> None:
    assert MAX_TIMELINE_BYTES * 4 / 3 + 300_000 < 2_500_000


def test_a_replay_tells_what_it_is_and_writes_its_page(tmp_path: Path) -> None:
    shown = replay(FOLDER / "search-500-trials.jsonl.gz", speed=16)
    assert repr(shown) == "<Replay of simulated run r1121-500tr, complete>"
    page = shown.save_html(tmp_path / "search.html").read_text()
    assert 'data-speed="16"' in page
    with pytest.raises(RecordingError, match="it exists already"):
        shown.save_html(tmp_path / "search.html")
    assert len(page) < 300_000  # docs/replay.md says so
    still = shown.still()
    assert "Simulated run, played from a recording." in still["text/plain"]
    assert len(still["text/html"].encode()) < 64_000


@pytest.mark.parametrize("speed", [0, -1, float("nan"), 1e9])
def test_a_speed_that_is_none_is_refused_before_the_file_is_read(speed: float) -> None:
    with pytest.raises(RecordingError, match="give more than 0 and at most 1000"):
        replay("no such file", speed=speed)


def test_a_recording_of_one_event_can_be_played(tmp_path: Path) -> None:
    facts = (replace(submitted(), at_s=5.0),)
    write_recording(Recording(head_of(facts, "recorded"), facts), tmp_path / "one.jsonl")
    assert replay(tmp_path / "one.jsonl").snapshot.state == "submitted"
