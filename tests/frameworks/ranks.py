"""Several ranks of one script on this machine: processes of one group that share loopback.

The first process is rank 0, and it alone tells the test. The others are started by it and run the
same case; the test kills the whole process group.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import script


def begin(world: int) -> int:
    """This process's rank; on rank 0 starts the others. Sets what torch's `env://` reads."""
    if "RANK" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        os.environ.update(WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        for rank in range(1, world):
            own = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            subprocess.Popen([sys.executable, *sys.argv], env=own, stdout=sys.stderr)
        os.environ.update(RANK="0", LOCAL_RANK="0")
    return int(os.environ["RANK"])


def together(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """One digest for each rank, the same on all of them; what `script.saving` takes."""
    import numpy
    import torch.distributed as dist

    digests: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, script.digest(tensors))
    raw = [numpy.frombuffer(d.encode(), dtype=numpy.uint8) for d in digests]
    return {str(rank): one for rank, one in enumerate(raw)}
