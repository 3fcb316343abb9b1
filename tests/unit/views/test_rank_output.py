"""Output of ranks, grouped."""

from __future__ import annotations

from jupyter_ddl.views.cell_output import render_rank_output


def test_equal_outputs_of_ranks_are_shown_once() -> None:
    shown = render_rank_output({0: "hello\n", 1: "hello\n", 2: "hello\n", 5: "hello\n"}, {})
    assert shown == "[0-2,5] hello"


def test_different_outputs_stand_in_the_order_of_ranks() -> None:
    assert render_rank_output({1: "b\n", 0: "a\n"}, {}) == "[0] a\n[1] b"


def test_further_lines_are_indented_below_the_first() -> None:
    assert render_rank_output({3: "a\n\nb\n"}, {}) == "[3] a\n\n    b"


def test_values_are_labelled_with_rank_and_cell() -> None:
    assert render_rank_output({}, {0: "3", 1: "3", 2: "4"}, 12) == "Out[0-1:12]: 3\nOut[2:12]: 4"


def test_a_value_of_several_lines_begins_on_its_own_line() -> None:
    assert render_rank_output({}, {0: "[1,\n 2]"}) == "Out[0]: \n[1,\n 2]"


def test_ranks_that_have_nothing_to_show_are_left_out() -> None:
    assert render_rank_output({0: "", 1: ""}, {0: None, 1: None}, 3) == ""


def test_a_progress_bar_shows_its_last_state_only() -> None:
    shown = render_rank_output({0: " 10%|#   \r 50%|##  \r100%|####\nend\n"}, {})
    assert shown == "[0] 100%|####\n    end"


def test_what_a_shorter_text_does_not_overwrite_stays() -> None:
    assert render_rank_output({0: "abcdef\rxy"}, {}) == "[0] xycdef"
