"""What a run has printed does nothing to the terminal that shows it."""

from __future__ import annotations

import pytest

from jupyter_ddl.cli.main import main
from jupyter_ddl.views.drawing import for_terminal


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain\ttext\r\nlines\n", "plain\ttext\r\nlines\n"),
        ("\x1b[31mred\x1b[0m \x1b[38:5:9mx", "\x1b[31mred\x1b[0m \x1b[38:5:9mx"),
        ("\x1b]0;title\x07a", "a"),
        ("\x1b]52;c;ZXZpbA==\x1b\\a", "a"),
        ("\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP+q544e\x1b\\a", "a"),
        ("\x1b[2J\x1b[1;1Ha\x1b[6n\x1b[?1049h", "a"),
        ("\x1b]0;never closed", "0;never closed"),
        ("\x9d0;title\x9ca\x9b2J", "0;titlea2J"),
        ("a\x08\x07\x00\x7fb\x1bcc", "abc"),
        ("\x1b\x1b[31mc\x1b]0;x", "\x1b[31mc0;x"),
    ],
)
def test_colours_stay_and_commands_go(printed: str, shown: str) -> None:
    assert for_terminal(printed) == shown


def test_logs_in_a_terminal_are_shown_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Told:
        def __init__(self, run_id: str | None) -> None:
            self.id = run_id

        def logs(self, *_: object, **__: object) -> str:
            return "\x1b]52;c;ZXZpbA==\x07\x1b[32mdone\x1b[0m\n"

    monkeypatch.setattr("jupyter_ddl.commands.runs.find_run", lambda text, *_: text)
    monkeypatch.setattr("jupyter_ddl.commands.runs.Run", Told)
    monkeypatch.setattr("jupyter_ddl.commands.cluster.chosen_cluster", Told)
    for words in (["runs", "logs", "r1"], ["cluster", "logs"]):
        assert main(words) == 0
        assert capsys.readouterr().out.rstrip("\n") == "\x1b[32mdone\x1b[0m"
