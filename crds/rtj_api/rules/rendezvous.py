"""The environment by which the ranks of a gang find each other, per framework.

Pure. Must never set what the framework's own launcher sets: where a replica runs several
processes, torchrun gives each its RANK and LOCAL_RANK.
"""

from __future__ import annotations

from enum import StrEnum

from rtj_api.contract import rendezvous_port


class Framework(StrEnum):
    PYTORCH = "pytorch"
    JAX = "jax"
    NONE = "none"


def environment(
    framework: str,
    *,
    rank: int,
    world_size: int,
    procs_per_replica: int,
    coordinator: str,
    attempt: int,
    port: int | None = None,
    run_id: str = "rtj",
) -> dict[str, str]:
    """Variables for the trainer of replica `rank` (0 … world_size - 1, one replica a pod).

    `coordinator` is the address of rank 0's pod; the port (unless told) moves with the attempt, so
    that a dying older attempt never holds it. Sources: torch.distributed `env://` (MASTER_*, RANK,
    WORLD_SIZE), torch.distributed.run (PET_<OPTION>); jax.distributed.initialize reads
    JAX_COORDINATOR_ADDRESS itself, number and ID of the process are its arguments and go by
    Kubeflow Trainer's names.
    Raises ValueError for an unknown framework.
    """
    at = str(rendezvous_port(attempt) if port is None else port)
    match Framework(framework):
        case Framework.PYTORCH:
            return _pytorch(
                rank=rank,
                world_size=world_size,
                procs=procs_per_replica,
                coordinator=coordinator,
                port=at,
                rendezvous_id=f"{run_id}-{attempt}",
            )
        case Framework.JAX:
            return {
                "JAX_COORDINATOR_ADDRESS": _with_port(coordinator, at),
                "JAX_COORDINATOR_PORT": at,
                "JAX_NUM_PROCESSES": str(world_size),
                "JAX_PROCESS_ID": str(rank),
            }
        case Framework.NONE:
            return {}


def _pytorch(
    *, rank: int, world_size: int, procs: int, coordinator: str, port: str, rendezvous_id: str
) -> dict[str, str]:
    env = {
        "MASTER_ADDR": coordinator,
        "MASTER_PORT": port,
        "NODE_RANK": str(rank),
        "PET_NNODES": str(world_size),
        "PET_NODE_RANK": str(rank),
        "PET_NPROC_PER_NODE": str(procs),
        "PET_MASTER_ADDR": coordinator,
        "PET_MASTER_PORT": port,
        # Static: the ranks stay those of the pods, and a missing node fails at once instead of
        # being waited for.
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": _with_port(coordinator, port),
        "PET_RDZV_ID": rendezvous_id,
        # A restart inside would use a budget that nobody sees and resume from nobody knows where.
        "PET_MAX_RESTARTS": "0",
    }
    if procs == 1:
        env |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
        }
    return env


def _with_port(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
