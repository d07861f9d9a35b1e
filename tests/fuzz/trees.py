"""Readers that need a directory: one file of a save is the fuzzed bytes, and the verdict is asked.

Whatever the bytes are there is a verdict, and what is only a hint (TensorFlow's text `checkpoint`,
which a killed trainer leaves cut off) changes none.
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from kit.checkpoint_looks import judged
from kit.handmade_others import orbax, tf_checkpoint
from rtj_sidecar.checkpoints.types import Status

_NUMBER = 7


@functools.cache
def _tree(kind: str) -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """One save for the life of the process; the first value keeps it from being removed."""
    kept = tempfile.TemporaryDirectory(prefix="fuzz-")
    root = Path(kept.name)
    if kind == "orbax":
        orbax(root / str(_NUMBER), processes=1)
    else:
        tf_checkpoint(root / f"ckpt-{_NUMBER}", step=_NUMBER)
    return kept, root


def _verdict(kind: str, path: str, content: bytes) -> Status:
    root = _tree(kind)[1]
    place, before = root / path, (root / path).read_bytes()
    try:
        place.write_bytes(content)
        os.utime(place, (1_700_000_000, 1_700_000_000))
        ((_, verdict),) = judged(root).values()
        return verdict.status
    finally:
        place.write_bytes(before)


def orbax_marker(content: bytes) -> Status:
    return _verdict("orbax", f"{_NUMBER}/_CHECKPOINT_METADATA", content)


def orbax_tree(content: bytes) -> Status:
    return _verdict("orbax", f"{_NUMBER}/default/_METADATA", content)


def tf_state(content: bytes) -> Status:
    if (status := _verdict("tf", "checkpoint", content)) is not Status.VERIFIED:
        raise AssertionError(f"a hint made a whole save {status.value}")
    return status
