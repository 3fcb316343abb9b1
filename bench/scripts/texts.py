"""Text like that of newsgroups, made here: Zipfian words, two topics, the seed grid over it."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["make_texts", "seed_search"]

_N_WORDS = 30_000
_N_TOPIC_WORDS = 1_500
_MEAN_LENGTH = 280
"""Words of a document in the middle; lengths are log-normal, as those of newsgroups are."""


def make_texts(n_documents: int = 2_000, seed: int = 0) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Documents and their topic, 0 or 1."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = np.array(
        ["".join(rng.choice(letters, size=n)) for n in rng.integers(3, 11, size=_N_WORDS)]
    )
    common = 1.0 / np.arange(1, _N_WORDS + 1) ** 1.05
    topics = []
    for _ in range(2):
        weights = common.copy()
        weights[rng.choice(_N_WORDS, size=_N_TOPIC_WORDS, replace=False)] *= 1.6
        topics.append(np.cumsum(weights / weights.sum()))
    labels = rng.integers(0, 2, size=n_documents)
    lengths = np.maximum(20, rng.lognormal(np.log(_MEAN_LENGTH), 0.8, size=n_documents)).astype(int)
    texts = [
        " ".join(words[np.searchsorted(topics[label], rng.random(length), side="right")])
        for label, length in zip(labels, lengths, strict=True)
    ]
    return texts, labels


def seed_search(kind: Any, **options: Any) -> Any:
    """The course's grid (12 candidates) over its text pipeline, as a search of class ``kind``."""
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import Pipeline

    pipeline = Pipeline(
        [
            ("vect", CountVectorizer()),
            ("tfidf", TfidfTransformer()),
            ("clf", SGDClassifier(random_state=0)),
        ]
    )
    grid = {
        "vect__ngram_range": [(1, 1), (1, 2)],
        "tfidf__norm": ["l1", "l2"],
        "clf__alpha": [1e-3, 1e-4, 1e-5],
    }
    return kind(pipeline, grid, cv=5, **options)
