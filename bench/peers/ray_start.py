"""Ray alone: ``ray.init`` for 2 CPUs, until both run a task."""

import json
import time

import ray


@ray.remote
def noop() -> int:
    return 1


if __name__ == "__main__":
    started = time.perf_counter()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    init_s = time.perf_counter() - started
    ray.get([noop.remote() for _ in range(2)], timeout=60)
    figures = {"ready_s": init_s, "first_task_s": time.perf_counter() - started}
    ray.shutdown()
    print("BENCH-RESULT " + json.dumps(figures))
