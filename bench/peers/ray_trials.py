"""Ray Tune alone: no-op trials per second on 2 CPUs, with its actors reused."""

import json
import os
import tempfile
import time

import ray
from ray import tune


def objective(config: dict) -> None:
    tune.report({"acc": config["x"]})


def rate(n_trials: int, folder: str) -> float:
    tuner = tune.Tuner(
        objective,
        param_space={"x": tune.uniform(0.0, 1.0)},
        tune_config=tune.TuneConfig(
            metric="acc", mode="max", num_samples=n_trials, reuse_actors=True
        ),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    started = time.perf_counter()
    results = tuner.fit()
    elapsed_s = time.perf_counter() - started
    if len(results) != n_trials or results.num_errors:
        raise RuntimeError(f"{results.num_errors} of {len(results)} trials failed")
    return n_trials / elapsed_s


if __name__ == "__main__":
    n_trials = 40 if os.environ.get("JUPYTER_DDL_BENCH_QUICK") else 200
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as folder:
        rate(4, folder)
        figures = {"per_s": rate(n_trials, folder)}
    ray.shutdown()
    print("BENCH-RESULT " + json.dumps(figures))
