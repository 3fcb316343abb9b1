"""Ranks of a group find each other in frameworks, with GPUs and without."""

from __future__ import annotations

from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.frameworks.environment import framework_environment


def test_ranks_on_the_cpu_of_two_hosts() -> None:
    place = RankPlace("g", rank=3, world_size=4, local_rank=1, local_world_size=2, n_hosts=2)
    assert framework_environment(place) == {
        "ACCELERATE_USE_CPU": "true",
        "LT_ACCELERATOR": "cpu",
        "LT_DEVICES": "2",
        "LT_NUM_NODES": "2",
        "PL_TRAINER_ACCELERATOR": "cpu",
        "PL_TRAINER_DEVICES": "2",
        "PL_TRAINER_NUM_NODES": "2",
    }


def test_ranks_with_gpus_are_not_told_of_the_cpu() -> None:
    place = RankPlace(
        "g", world_size=2, local_world_size=2, gpus=("GPU-a", "GPU-b"), gpus_per_rank=1
    )
    assert "cpu" not in framework_environment(place).values()
    assert framework_environment(place)["PL_TRAINER_DEVICES"] == "2"
