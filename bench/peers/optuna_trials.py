"""Optuna alone: no-op trials per second of 2 processes on one study in a file."""

import json
import multiprocessing
import os
import sys
import tempfile
import time

import optuna
from optuna.storages.journal import JournalFileBackend


def storage_of(kind: str, folder: str) -> optuna.storages.BaseStorage:
    if kind == "sqlite":
        return optuna.storages.RDBStorage(f"sqlite:///{folder}/study.db")
    return optuna.storages.JournalStorage(JournalFileBackend(f"{folder}/study.log"))


def objective(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0.0, 1.0)


def work(kind: str, folder: str, n_trials: int, barrier: multiprocessing.Barrier) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.load_study(
        study_name="bench",
        storage=storage_of(kind, folder),
        sampler=optuna.samplers.RandomSampler(),
    )
    study.optimize(objective, n_trials=5)
    barrier.wait(60)
    study.optimize(objective, n_trials=n_trials)


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    n_trials = 200 if os.environ.get("JUPYTER_DDL_BENCH_QUICK") else 600
    with tempfile.TemporaryDirectory() as folder:
        kind = sys.argv[1]
        optuna.create_study(study_name="bench", storage=storage_of(kind, folder))
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(3)
        arguments = (kind, folder, n_trials // 2, barrier)
        workers = [context.Process(target=work, args=arguments) for _ in range(2)]
        for worker in workers:
            worker.start()
        barrier.wait(60)
        started = time.perf_counter()
        for worker in workers:
            worker.join(200)
        elapsed_s = time.perf_counter() - started
    print("BENCH-RESULT " + json.dumps({"per_s": n_trials / elapsed_s}))
