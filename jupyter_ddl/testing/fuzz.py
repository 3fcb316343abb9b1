"""Feeds damaged, false and hostile input to everything that reads what others wrote.

One case is one input: a ledger, a frame of the processes below a controller, a message of a client
or of a controller, a message of a browser, a recording, or a magic's line; made by a generator from
a valid one, or of its parts.  Only errors of this package may come out of a reader, each within
seconds of CPU time, and memory may not grow.
``python -m jupyter_ddl.testing.fuzz --count 100000``
"""

from __future__ import annotations

import argparse
import functools
import gc
import gettext
import os
import resource
import signal
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import psutil
from msgspec import inspect as shapes

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.grammar import Grammar, HelpRequested
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.ledger.reader import LedgerReader, read_run_line
from jupyter_ddl.ledger.records import HEADER, pack_frames
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.snapshots import encoded_snapshot
from jupyter_ddl.magics.face import commands_of, expand_line
from jupyter_ddl.protocol.codec import UNREADABLE, decoder_of, encode_event
from jupyter_ddl.protocol.events import AssignmentResult, Event, EventChunk
from jupyter_ddl.protocol.framing import FrameBuffer, encode_frame
from jupyter_ddl.protocol.rank_messages import FromRank, FromZygote, LoaderWait, ToRank, ToZygote
from jupyter_ddl.protocol.replies import Upward
from jupyter_ddl.protocol.requests import Request
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.sampling import SamplerAnswers
from jupyter_ddl.protocol.view_messages import FromBrowser
from jupyter_ddl.recording.lines import Head, line_of, read_recording
from jupyter_ddl.recording.timeline import last_snapshot, timeline_of
from jupyter_ddl.testing.interleave import random_spec, random_world
from jupyter_ddl.testing.samples import mutated_bytes, mutated_tree, sample_of
from jupyter_ddl.verbs.base import distribute_grammar
from jupyter_ddl.views.channel import Channel

__all__ = ["GENERATORS", "Case", "main", "play"]

Case = Callable[[Random], None]
"""Makes one input and has it read."""

_CASE_S = 10.0
"""CPU time; nothing that is read is worth more."""
_N_SAMPLES = 300
_GROWTH_BYTES = 32 << 20
_KEPT_BYTES = 64 << 10
_N_KEPT = 500


_MAKES: dict[type, Callable[[Random], Any]] = {
    RunSpec: lambda rng: random_spec(rng, rng.choice(("search", "map", "training")), "r1")
}


class FuzzError(AssertionError):
    """A reader let something else out than an error of this package, hung or grew."""


class _Hung(BaseException):
    """No ``Exception``: a reader that turns errors into its own must not hide this one."""


# -- ledgers and recordings ------------------------------------------------------------------------


def _stories() -> list[list[Event]]:
    """Short ledgers as runs write them."""
    found = []
    for kind in ("search", "map", "training"):
        for seed in range(12):
            world = random_world(seed, kind)
            world.run()
            found += [run.ledger for run in world.runs if len(run.ledger) < 80]
    rng = Random(0)
    kinds = shapes.type_info(Event)
    assert isinstance(kinds, shapes.UnionType)
    for story in list(found[:10]):  # with events of every kind, wherever they may not stand
        mixed = list(story)
        for each in kinds.types:
            mixed.insert(rng.randrange(1, len(mixed) + 1), sample_of(each, rng, _MAKES))
        found.append(mixed)
    return found


def _told(rng: Random, stories: list[list[bytes]]) -> list[bytes]:
    """Encoded events of a story; some of them false, lost, doubled or in another order."""
    events = list(rng.choice(stories))
    for _ in range(rng.choice((0, 1, 2, 5))):
        # All that follows rests on the first one: what run it is.
        at = 0 if rng.random() < 0.2 else rng.randrange(len(events))
        deed = rng.randrange(6)
        if deed == 0 and len(events) > 1:
            del events[at]
        elif deed == 1:
            events.insert(rng.randrange(len(events)), events[at])
        elif deed == 2:
            events[at] = mutated_bytes(events[at], rng, rng.choice(events))
        else:
            one = events[at] if deed < 5 else rng.choice(rng.choice(stories))
            with suppress(*UNREADABLE, OverflowError, TypeError):  # it was damaged before
                tree = mutated_tree(msgspec.msgpack.decode(one), rng)
                events[at] = msgspec.msgpack.encode(tree)
    return events


def _ledger(folder: Path) -> Case:
    stories = [[encode_event(event) for event in story] for story in _stories()]
    path = folder / "ledger.ddl"

    def play(rng: Random) -> None:
        data = HEADER + pack_frames(_told(rng, stories))
        if rng.random() < 0.3:
            data = mutated_bytes(data, rng, data[: rng.randrange(len(data))])
        path.write_bytes(data)
        _tried(partial(read_run_line, path))
        events: list[Event] = []
        with LedgerReader(path, stops_at_damage=rng.random() < 0.5) as reader:
            events += reader.poll()
        audit(events)
        encoded_snapshot(fold_all(events), 0.0).decode()

    return play


def _recording(folder: Path) -> Case:
    stories = [
        [line_of(Head(1, "recorded", "1", "r1", "search")), *(line_of(event) for event in story)]
        for story in _stories()
    ]
    path = folder / "recording.jsonl"

    def play(rng: Random) -> None:
        lines = list(rng.choice(stories))
        for _ in range(rng.choice((0, 1, 2, 5))):
            at = rng.randrange(len(lines))
            if rng.random() < 0.3:
                lines.insert(rng.randrange(len(lines)), lines[at])
            else:
                tree = mutated_tree(msgspec.json.decode(lines[at]), rng)
                lines[at] = _json(tree)
        data = ("\n".join(lines) + "\n").encode()
        if rng.random() < 0.3:
            data = mutated_bytes(data, rng, data[: rng.randrange(len(data))])
        path.write_bytes(data)
        recording = read_recording(path)
        last_snapshot(recording)
        if rng.random() < 0.1:
            timeline_of(recording)

    return play


def _json(tree: Any) -> str:
    try:
        return msgspec.json.encode(tree).decode()
    except (TypeError, msgspec.MsgspecError):
        return "{}"


# -- messages --------------------------------------------------------------------------------------


def _samples(union: Any) -> list[bytes]:
    """Valid messages of every kind of a union, encoded."""
    rng = Random(1)
    kind = shapes.type_info(union)
    kinds = kind.types if isinstance(kind, shapes.UnionType) else (kind,)
    n = max(2, _N_SAMPLES // len(kinds))
    return [
        msgspec.msgpack.encode(sample_of(each, rng, _MAKES)) for each in kinds for _ in range(n)
    ]


def _damaged(rng: Random, samples: list[bytes]) -> bytes:
    one = rng.choice(samples)
    if rng.random() < 0.5:
        return mutated_bytes(one, rng, rng.choice(samples))
    try:
        return msgspec.msgpack.encode(mutated_tree(msgspec.msgpack.decode(one), rng))
    except (OverflowError, TypeError):
        return one


def _messages(*unions: Any) -> Callable[[Path], Case]:
    def make(_: Path) -> Case:
        readers = [(decoder_of(union), _samples(union)) for union in unions]

        def play(rng: Random) -> None:
            decode, samples = rng.choice(readers)
            data = b"".join(encode_frame(_damaged(rng, samples)) for _ in range(rng.randint(1, 3)))
            if rng.random() < 0.2:
                data = mutated_bytes(data, rng, samples[0])
            buffer = FrameBuffer()
            at = 0
            while at < len(data):
                to = at + rng.choice((1, 3, 100, 1 << 16))
                for payload in buffer.feed(data[at:to]):
                    _tried(partial(decode, payload))
                at = to

        return play

    return make


def _views(_: Path) -> Case:
    samples = [
        msgspec.json.encode(msgspec.msgpack.decode(sample)) for sample in _samples(FromBrowser)
    ]
    channel = [Channel()]

    def play(rng: Random) -> None:
        if rng.random() < 0.001:
            channel[0] = Channel()
        one = rng.choice(samples)
        tree = mutated_tree(msgspec.json.decode(one), rng)
        data: Any = mutated_bytes(one, rng, rng.choice(samples))
        if rng.random() < 0.5:
            data = tree if rng.random() < 0.5 else _json(tree)
        elif rng.random() < 0.5:
            data = data.decode("utf-8", "surrogateescape")
        channel[0].receive(data)
        channel[0].due()

    return play


# -- lines -----------------------------------------------------------------------------------------

_WORDS = (
    "--", "-", "=", "--help", "-h", "''", '"', "\\", "{x}", "{", "}", "{{", "$x", "$", "{1/0}",
    "\x00", "1", "-1", "0", "1e400", "nan", "5m", "0s", "99999999999999999999h", "1TB", "-5GB",
    "é", "x=1", "a,b", ",", "x in y", "*", "../..", "search", "local", "last", "\u2028", "\ud800",
    "[1, 2]", "#",
)  # fmt: skip


def _lines(_: Path) -> Case:
    grammars: list[Grammar] = [
        distribute_grammar(),
        commands_of("cluster"),
        commands_of("runs"),
    ]
    words = {
        id(grammar): {
            name: [flag for each in command.given(()).each() for flag in each.flags]
            for name, command in grammar.commands.items()
        }
        for grammar in grammars
    }

    def play(rng: Random) -> None:
        grammar = rng.choice(grammars)
        commands = words[id(grammar)]
        name = rng.choice(list(commands)) if rng.random() < 0.95 else rng.choice(_WORDS)
        own = commands.get(name, [])
        typed = [name]
        for _ in range(rng.choice((0, 1, 2, 4, 8))):
            if own and rng.random() < 0.5:
                typed.append(rng.choice(own) + rng.choice(("", "", "=" + rng.choice(_WORDS))))
            else:
                typed.append(rng.choice(_WORDS))
        line = rng.choice((" ", " ", "  ")).join(typed)
        if rng.random() < 0.2:
            line = mutated_bytes(line.encode(errors="replace"), rng, b"--").decode(errors="replace")
        grammar.offers(line.split() or [""], {})
        line = expand_line(line, {"x": "1 2"})
        command, values = grammar.parse_line(line)
        if grammar is grammars[0]:
            command.call(**values)  # the verb and the options of its cell

    return play


GENERATORS: dict[str, Callable[[Path], Case]] = {
    "ledger": _ledger,
    "frames": _messages(
        FromRank | LoaderWait, FromZygote, ToRank, ToZygote, EventChunk, AssignmentResult,
        SamplerAnswers,
    ),
    "server": _messages(Request, Upward),
    "recording": _recording,
    "views": _views,
    "lines": _lines,
}  # fmt: skip
"""By kind: gets a folder for its files, and returns what makes and reads one input."""


# -- judging ---------------------------------------------------------------------------------------


def _tried(read: Callable[[], object]) -> None:
    """One of several readers of an input; what it refuses may concern the others, too."""
    try:
        read()
    except JupyterDDLError:
        return


def play(kind: str, seeds: range, folder: Path) -> Counter[str]:
    """Play cases, one for each seed; how many ended in which way.

    Raises
    ------
    FuzzError
        Names the seed of the case that broke the rule.
    """
    case = GENERATORS[kind](folder)
    ends: Counter[str] = Counter()
    rng = Random()
    n_warm = max(1, len(seeds) // 10)
    warm_bytes = 0
    with _bounded():
        for number, seed in enumerate(seeds):
            ends[_end_of(case, rng, kind, seed)] += 1
            if number == n_warm:
                gc.collect()
                warm_bytes = _rss()
        gc.collect()
        if (grown := _rss() - warm_bytes) > _GROWTH_BYTES and len(seeds) > 1:
            raise FuzzError(f"{kind}: {len(seeds)} cases made memory grow by {grown:,} bytes")
        _check_kept(case, rng, kind, seeds[:_N_KEPT])
    return ends


def _end_of(case: Case, rng: Random, kind: str, seed: int) -> str:
    rng.seed(seed)
    # Again and again: were it raised where nobody hears it, in a destructor, one would not do.
    signal.setitimer(signal.ITIMER_VIRTUAL, _CASE_S, _CASE_S)
    try:
        case(rng)
    except JupyterDDLError as error:
        return type(error).__name__
    except HelpRequested:
        return "help"
    except _Hung as error:
        raise FuzzError(f"{kind}: the case of seed {seed} hung: {error}") from error
    except Exception as error:
        raise FuzzError(
            f"{kind}: the case of seed {seed} let out {type(error).__name__}: {error!s:.300}"
        ) from error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return "read"


def _check_kept(case: Case, rng: Random, kind: str, seeds: range) -> None:
    """The same cases once more: all that could be kept for good reasons is there already."""
    tracemalloc.start()
    try:
        for n_round in range(2):
            if n_round:
                gc.collect()
                before, _ = tracemalloc.get_traced_memory()
            for seed in seeds:
                _end_of(case, rng, kind, seed)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    if kept > _KEPT_BYTES:
        raise FuzzError(f"{kind}: {len(seeds)} cases that are read again keep {kept:,} bytes")


@contextmanager
def _bounded() -> Iterator[None]:
    """A case that takes too much CPU time, or memory, raises; what is installed stays so."""

    def on_alarm(*_: object) -> None:
        raise _Hung(f"no end within {_CASE_S:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, on_alarm)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    vms = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (vms + (1 << 30), limits[1]))
    # Else most of the time of a line: argparse looks for translations at each refusal.
    looked_up, translated = functools.cache(entry_points), functools.cache(gettext.find)
    try:
        with (
            patch("importlib.metadata.entry_points", looked_up),
            patch("gettext.find", translated),
        ):
            yield
    finally:
        signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _rss() -> int:
    return int(psutil.Process().memory_info().rss)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="jupyter_ddl.testing.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--kind", choices=sorted(GENERATORS), action="append")
    options = parser.parse_args(arguments)
    for kind in options.kind or GENERATORS:
        began_s = time.process_time()
        with tempfile.TemporaryDirectory(prefix="ddl-fuzz-", dir=_memory()) as folder:
            ends = play(kind, range(options.seed, options.seed + options.count), Path(folder))
        took_s = time.process_time() - began_s
        told = ", ".join(f"{n} {end}" for end, n in ends.most_common())
        sys.stdout.write(
            f"{kind}: {options.count} cases in {took_s:.1f} s of CPU, "
            f"{options.count / took_s:.0f}/s: {told}\n"
        )
        sys.stdout.flush()
    return 0


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    raise SystemExit(main())
