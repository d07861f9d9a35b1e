"""Guide of `layout: tf-checkpoint`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("TF Checkpoint",),
        recognised_by="`X.index` and `X.data-0000i-of-0000n`",
        marker="the index, written last; data files without it did not finish",
        container="a CRC-32C over every block of the index, and one of every tensor",
        set_rule="all data files that the index counts",
        metadata=(
            "step and epoch from variables of these names near the top, else the optimizer's"
            " iterations, else the number in the name; read as single integers from the data"
        ),
        resumes=(
            "`tf.train.latest_checkpoint(dir)` or `CheckpointManager.restore_or_initialize()`:"
            " nothing else is needed. The text `checkpoint`, which alone they read, is written anew"
            " with a path relative to it; saves before the restored one are then no longer rotated"
        ),
        full_resume_needs=(
            "the optimizer must be part of the `Checkpoint`. No RNG state unless a generator is,"
            " no position in the data unless the iterator is"
        ),
        on_own_disks="Each worker gets all files. No shared volume needed where the chief writes",
        evidence=(
            "tensorflow-cpu 2.21.0: real saves and resumes through CheckpointManager,"
            " one or two kills at a save, once shipped while it trained and back on empty disks"
        ),
    ),
)
