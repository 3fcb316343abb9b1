"""The course's grid search over a text pipeline, and what a candidate-fold costs by itself."""

from __future__ import annotations

import time
from typing import Any

from bench.harness import Goal, Line, Probe, Row, is_quick, tell
from bench.scripts.texts import make_texts, seed_search

_OURS = Probe("bench.rows.fit")

ROW = Row(
    name="fit",
    title="The seed grid: 12 candidates × 5 folds over 2,000 documents, 2 workers",
    better="lower",
    repeats=3,
    warmups=0,  # every probe warms up by a search of its own
    note=(
        "CountVectorizer, TfidfTransformer, SGDClassifier; no refit; a small search before it "
        "warms up. Distinct work: every prefix and every classifier once per fold, in one process, "
        "divided by 2 cores. Overhead: a classifier that does nothing, per candidate and fold, of "
        "the whole `fit` call."
    ),
    lines=(
        Line("`%%distribute fit`", _OURS, "fit_s", "s"),
        Line("… over the distinct work ÷ 2 cores", _OURS, "over_work", "", Goal(1.25, "lower")),
        Line(
            "dask-ml GridSearchCV", Probe("daskml_fit.py", ("daskml",)), "fit_s", "s", compare=True
        ),
        Line(
            "scikit-learn, n_jobs=2",
            Probe("daskml_fit.py", ("sklearn",)),
            "fit_s",
            "s",
            compare=True,
        ),
        Line(
            "joblib's Dask backend", Probe("daskml_fit.py", ("joblib",)), "fit_s", "s", compare=True
        ),
        Line("overhead per candidate-fold", _OURS, "overhead_ms", "ms", Goal(3.0, "lower")),
        Line(
            "growth of the controller per candidate",
            _OURS,
            "growth_bytes",
            "bytes",
            Goal(2_000, "lower"),
        ),
    ),
)


def _distinct_work_s(texts: list[str], labels: Any) -> float:
    """CPU seconds of every distinct prefix and every classifier, on every fold."""
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    search = seed_search(GridSearchCV)
    grid = search.param_grid
    vect, tfidf, clf = (step for _, step in search.estimator.steps)
    started = time.process_time()
    for train, test in StratifiedKFold(5).split(texts, labels):
        rows, others = [texts[i] for i in train], [texts[i] for i in test]
        for ngrams in grid["vect__ngram_range"]:
            counter = clone(vect).set_params(ngram_range=ngrams)
            counts, other_counts = counter.fit_transform(rows), counter.transform(others)
            for norm in grid["tfidf__norm"]:
                weigher = clone(tfidf).set_params(norm=norm)
                weights, other_weights = (
                    weigher.fit_transform(counts),
                    weigher.transform(other_counts),
                )
                for alpha in grid["clf__alpha"]:
                    model = clone(clf).set_params(alpha=alpha).fit(weights, labels[train])
                    model.score(other_weights, labels[test])
    return time.process_time() - started


def _overhead(n_candidates: int) -> tuple[float, float]:
    """Milliseconds per candidate-fold, and the controller's growth in bytes per candidate."""
    import numpy as np
    import psutil
    from sklearn.dummy import DummyClassifier
    from sklearn.model_selection import GridSearchCV

    from jupyter_ddl.client.session import session
    from jupyter_ddl.sklearn_fit.fit_api import fit

    process = psutil.Process(session().info(session().current or "local").process.pid)
    rows, labels = np.zeros((100, 3)), np.arange(100) % 2
    grid = {"random_state": list(range(n_candidates))}
    before = process.memory_info().rss
    started = time.perf_counter()
    fit(GridSearchCV(DummyClassifier(), grid, cv=5, refit=False), rows, labels)
    elapsed_s = time.perf_counter() - started
    growth = process.memory_info().rss - before
    return 1000 * elapsed_s / (5 * n_candidates), growth / n_candidates


def measure() -> None:
    from sklearn.model_selection import GridSearchCV

    from jupyter_ddl.client.clusters import start_cluster
    from jupyter_ddl.sklearn_fit.fit_api import fit

    texts, labels = make_texts()
    cluster = start_cluster(n_workers=2)
    try:
        fit(seed_search(GridSearchCV, refit=False), texts[:100], labels[:100])
        started = time.perf_counter()
        fit(seed_search(GridSearchCV, refit=False), texts, labels)
        fit_s = time.perf_counter() - started
        overhead_ms, growth_bytes = _overhead(200 if is_quick() else 10_000)
    finally:
        cluster.stop()
    work_s = _distinct_work_s(texts, labels)
    tell(
        {
            "fit_s": fit_s,
            "over_work": fit_s / (work_s / 2),
            "overhead_ms": overhead_ms,
            "growth_bytes": growth_bytes,
        }
    )


if __name__ == "__main__":
    measure()
