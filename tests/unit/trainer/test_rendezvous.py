"""What each framework reads, and what must be left to its launcher."""

from __future__ import annotations

import pytest
from rtj_api.contract import rendezvous_port
from rtj_api.rules.rendezvous import environment


def env(framework: str, *, procs: int = 1, attempt: int = 7, host: str = "198.18.1.5") -> dict:
    return environment(
        framework, rank=1, world_size=4, procs_per_replica=procs, coordinator=host, attempt=attempt
    )


def test_plain_ddp_gets_everything_of_env_rendezvous() -> None:
    found = env("pytorch")
    assert found["MASTER_ADDR"] == "198.18.1.5"
    assert found["MASTER_PORT"] == str(rendezvous_port(7))
    assert (found["RANK"], found["WORLD_SIZE"], found["LOCAL_RANK"]) == ("1", "4", "0")


def test_torchrun_sets_the_ranks_itself_where_there_are_several() -> None:
    found = env("pytorch", procs=8)
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"} & set(found)
    assert found["PET_NPROC_PER_NODE"] == "8"
    assert (found["PET_NNODES"], found["PET_NODE_RANK"]) == ("4", "1")
    assert found["PET_MAX_RESTARTS"] == "0"


def test_the_port_moves_with_the_attempt() -> None:
    ports = {env("pytorch", attempt=n)["MASTER_PORT"] for n in range(1, 101)}
    assert len(ports) == 100


def test_jax() -> None:
    found = env("jax", host="fd00::5")
    assert found["JAX_COORDINATOR_ADDRESS"] == f"[fd00::5]:{rendezvous_port(7)}"
    assert (found["JAX_NUM_PROCESSES"], found["JAX_PROCESS_ID"]) == ("4", "1")


def test_none_and_unknown() -> None:
    assert env("none") == {}
    with pytest.raises(ValueError, match="chainer"):
        env("chainer")
