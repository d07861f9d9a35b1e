"""PyTorch's own flight recorder, from the hung gang to the name of the missing rank."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from kit.reference import free_port, trainer_python
from rtj_api.rules.flight import missing
from rtj_sidecar.flights import flight_of
from rtj_sidecar.trainer.supervisor.flight import named_after, prefixes_of

RANKS = 3
SCRIPT = """
import os, threading, time
import torch, torch.distributed as dist
import torch._C._distributed_c10d as c10d
dist.init_process_group("gloo")
rank, one = dist.get_rank(), torch.ones(4, 3)
for _ in range(3): dist.all_reduce(one)
wrong, what = int(os.environ["WRONG"]), os.environ["WHAT"]
def call():
    if rank == wrong and what == "otherwise": dist.broadcast(one, src=0)
    else: dist.all_reduce(one)
store = dist.distributed_c10d._get_default_store()
if rank != wrong or what == "otherwise": threading.Thread(target=call, daemon=True).start()
time.sleep(1.0)
c10d._dump_fr_trace_file(rank)
store.set("dumped%d" % rank, "1")
store.wait(["dumped%d" % r for r in range(dist.get_world_size())])
time.sleep(0.5)
os._exit(0)
"""


@pytest.mark.parametrize(("what", "is_mismatch"), [("absent", False), ("otherwise", True)])
def test_the_missing_rank_is_named(tmp_path: Path, what: str, is_mismatch: bool) -> None:
    env = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(RANKS),
        "TORCH_FR_BUFFER_SIZE": "100",
        "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "rank_"),
        "WRONG": "1",
        "WHAT": what,
    }
    ranks = [
        subprocess.Popen([str(trainer_python()), "-c", SCRIPT], env={**env, "RANK": str(rank)})
        for rank in range(RANKS)
    ]
    try:
        assert [one.wait(250) for one in ranks] == [0] * RANKS
    finally:
        for one in ranks:
            one.kill()
    found = [pair for prefix in prefixes_of(env) for pair in named_after(prefix, "")]
    assert [process for _, process in found] == list(range(RANKS))
    told = {}
    for name, process in found:
        flight = flight_of(Path(name).read_bytes(), process=process)
        assert flight is not None
        told[process] = [flight]
    verdict = missing(told)
    assert verdict is not None
    assert (verdict.rank, verdict.is_mismatch) == (1, is_mismatch)
