"""Equal content, equal keys; anything else, another key."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from jupyter_ddl.sklearn_fit.batches import key_of, keys_of

ARRAY = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        ("1", b"1"),
        ([1, 2], (1, 2)),
        (["ab", "c"], ["a", "bc"]),
        (ARRAY, ARRAY.T),
        (ARRAY, ARRAY.astype("f4")),
        (ARRAY, ARRAY.reshape(3, 2)),
        (sp.csr_matrix(ARRAY), sp.csc_matrix(ARRAY)),
        (pd.DataFrame(ARRAY), pd.DataFrame(ARRAY, columns=list("abc"))),
        (pd.Series([1, 2]), pd.Series([1, 2], name="a")),
        (LogisticRegression(), LogisticRegression(C=2)),
        (StandardScaler(), StandardScaler().set_output(transform="pandas")),
        (None, "None"),
        ({"a": 1}, {"a": 2}),
    ],
)
def test_what_differs_has_other_keys(one: object, other: object) -> None:
    assert key_of(one) != key_of(other)


def test_copies_have_the_same_key() -> None:
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.5))
    for value, copy in (
        (pipeline, clone(pipeline)),
        (ARRAY, np.asfortranarray(ARRAY)),
        (ARRAY[:, ::2], ARRAY[:, ::2].copy()),
        (["ab", "cd"], ["a" + "b", "".join(["c", "d"])]),
        (pd.DataFrame({"t": ["x", "y"]}), pd.DataFrame({"t": ["x", "y"]})),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}),
        (np.random.RandomState(3), np.random.RandomState(3)),
    ):
        assert key_of(value) == key_of(copy)


def test_another_process_makes_the_same_keys(tmp_path: Path) -> None:
    code = (
        "from sklearn.svm import SVC\n"
        "from jupyter_ddl.sklearn_fit.batches import keys_of\n"
        "print(keys_of(SVC(C=2.0), {'a', 'b', 'c'}, [1, 'x'], {'k': None}).hex())"
    )
    found = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 32


def test_what_cannot_be_pickled_is_like_nothing_else() -> None:
    lock = threading.Lock()
    assert keys_of(lock) != keys_of(lock)
