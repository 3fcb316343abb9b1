"""The seed grid by dask-ml, by scikit-learn alone, or by joblib's Dask backend; 2 processes."""

import json
import sys
import time
import warnings

import joblib
from distributed import Client, LocalCluster
from sklearn.model_selection import GridSearchCV

from bench.scripts.texts import make_texts, seed_search


def timed(kind, texts, labels, **options):
    started = time.perf_counter()
    seed_search(kind, refit=False, **options).fit(texts, labels)
    return time.perf_counter() - started


def measure(who: str) -> float:
    texts, labels = make_texts()
    few = texts[:100], labels[:100]
    if who == "sklearn":
        timed(GridSearchCV, *few, n_jobs=2)
        return timed(GridSearchCV, texts, labels, n_jobs=2)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        if who == "daskml":
            from dask_ml.model_selection import GridSearchCV as DaskSearchCV

            timed(DaskSearchCV, *few)
            return timed(DaskSearchCV, texts, labels)
        with joblib.parallel_config(backend="dask"):
            timed(GridSearchCV, *few)
            return timed(GridSearchCV, texts, labels)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("BENCH-RESULT " + json.dumps({"fit_s": measure(sys.argv[1])}))
