"""Dumps as PyTorch's flight recorder writes them for NCCL.

Keys and their order: PyTorch's FlightRecorderDetail.hpp (`getCollectiveTrace`, `getPgStatus`,
`getPgConfig`) and the reader of its own analyser, tools/flight_recorder/components/types.py. Those
of gloo, from a real run, are in tests/fixtures/flight.
"""

from __future__ import annotations

import pickle
from typing import Any

NAME = ("0", "default_pg")


def entry(
    seq: int,
    *,
    op: str = "nccl:all_reduce",
    state: str = "completed",
    sizes: list[list[int]] | None = None,
    group: tuple[str, str] = NAME,
    pg_id: int = 0,
    retired: bool | None = None,
    is_p2p: bool = False,
) -> dict[str, Any]:
    done = state == "completed"
    return {
        "frames": [{"name": "step", "filename": "/app/train.py", "line": 12}],
        "record_id": seq - 1,
        "pg_id": pg_id,
        "process_group": group,
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": op,
        "time_created_ns": 1_796_057_233_403_886_103 + seq,
        "input_sizes": [[4, 3]] if sizes is None else sizes,
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 3]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": 1_796_057_233_403_886_203 if state != "scheduled" else None,
        "time_discovered_completed_ns": 1_796_057_233_403_886_303 if done else None,
        "retired": done if retired is None else retired,
        "timeout_ms": 600_000,
        "is_p2p": is_p2p,
    }


def dump(
    entries: list[dict[str, Any]], *, begun: int, ended: int, ranks: str = "[0, 1, 2]"
) -> dict[str, Any]:
    """As a value. `begun`, `ended`: what `pg_status` says of the default group."""
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {
            "0": {
                "last_enqueued_collective": begun,
                "last_started_collective": begun,
                "last_completed_collective": ended,
            }
        },
        "entries": entries,
    }


def waiting(
    seq: int, *, op: str = "nccl:all_reduce", sizes: list[list[int]] | None = None
) -> bytes:
    """A rank that waits in its operation `seq`."""
    done = [entry(n) for n in range(1, seq)]
    last = entry(seq, op=op, state="started", sizes=sizes)
    return pickle.dumps(dump([*done, last], begun=seq, ended=seq - 1), protocol=2)


def absent(seq: int) -> bytes:
    """A rank that has ended its operation `seq` and begun none since."""
    return pickle.dumps(
        dump([entry(n) for n in range(1, seq + 1)], begun=seq, ended=seq), protocol=2
    )
