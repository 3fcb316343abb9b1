"""Who has said nothing lately: told once, by name, and never for time in which nobody listened."""

from __future__ import annotations

from jupyter_ddl.controller.silence import WorkerSilence, text_of_silence


def of_two(interval_s: float = 1.0) -> WorkerSilence:
    silence = WorkerSilence(interval_s)
    silence.keep({"a", "b"}, 0.0)
    return silence


def test_a_worker_that_falls_silent_is_told_once_and_so_is_its_return() -> None:
    silence = of_two()
    for at_s in range(1, 12):
        silence.heard("a", float(at_s))
    assert silence.news(9.0) == ([], [])
    assert silence.news(11.0) == (["b"], [])
    assert silence.silent(11.0) == {"b": 11.0}
    assert silence.news(12.0) == ([], [])
    silence.heard("b", 12.5)
    assert silence.news(13.0) == ([], ["b"])
    assert silence.silent(13.0) == {}


def test_a_worker_that_is_gone_is_neither_silent_nor_back() -> None:
    silence = of_two()
    assert silence.news(11.0) == (["a", "b"], [])
    silence.keep({"b"}, 11.0)
    silence.heard("a", 11.0)
    silence.heard("b", 11.0)
    assert silence.news(12.0) == ([], ["b"])


def test_one_that_joins_late_has_its_whole_time() -> None:
    silence = of_two()
    silence.keep({"c"}, 100.0)
    assert silence.news(109.0) == ([], [])
    assert silence.news(111.0) == (["c"], [])


def test_nobody_is_silent_for_time_in_which_nobody_was_heard() -> None:
    silence = of_two()
    silence.excuse(30.0)
    assert silence.news(39.0) == ([], [])
    assert silence.news(41.0) == (["a", "b"], [])


def test_patience_grows_with_the_interval_and_no_samples_mean_no_silence() -> None:
    assert of_two(10.0).silent(49.0) == {}
    assert of_two(10.0).silent(51.0) == {"a": 51.0, "b": 51.0}
    assert of_two(0.0).silent(1e9) == {}


def test_the_sentence_names_the_longest_silent_ones_first() -> None:
    assert text_of_silence({}) == ""
    one = text_of_silence({"a": 12.3})
    assert one.startswith("nothing was heard of worker a for 12 s: the network is cut there, or it")
    many = text_of_silence({str(n): 10.0 + n for n in range(5)})
    assert "workers 4, 3, 2 and 2 more for 14 s" in many
