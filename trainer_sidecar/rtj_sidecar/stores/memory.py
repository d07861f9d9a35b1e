"""How many threads may hold bytes of a transfer at once: by a node's memory, not by its cores.

A sidecar's memory limit is the same on every node (1 GiB by default), and a node may have hundreds
of cores. Must never answer less than one.
"""

from __future__ import annotations

TRANSFER_MEMORY = 128 << 20


def within_memory(threads: int, *, each: int) -> int:
    """As many of `threads` as may hold `each` bytes at the same time; at least one."""
    return max(1, min(threads, TRANSFER_MEMORY // max(each, 1)))
