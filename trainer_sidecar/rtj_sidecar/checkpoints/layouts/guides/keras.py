"""Guides of `layout: keras`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

_CONTAINER = (
    "every member's CRC-32 of `.keras`; of HDF5 that its writer closed it (the superblock names"
    " the exact size) and that every group and array lies within it. It has no checksum: zeros in"
    " an array are not seen"
)

GUIDES = (
    Guide(
        products=("Keras 3",),
        recognised_by="`*.keras`, `*.weights.h5`, and `*.h5` with the groups that Keras makes",
        marker="none: Keras writes the final name from the first byte on, and closes it twice",
        container=_CONTAINER,
        set_rule="one file is one save",
        metadata=(
            "step: the optimizer's count of iterations; epoch from the name"
            " (`epoch_03.weights.h5`); whether the optimizer's variables are in it"
        ),
        resumes=(
            "Your script: `model.load_weights(path)` or `keras.models.load_model(path)` and"
            " `fit(initial_epoch=E)`, with the path from `RTJ_RESUME_CHECKPOINT`; or"
            " `BackupAndRestore`, which needs nothing else"
        ),
        full_resume_needs=(
            "the optimizer's variables, which `.keras` and `.weights.h5` of a compiled model hold."
            " Keras saves no RNG state and no position in the data; keep ModelCheckpoint's best"
            " value by `initial_value_threshold`"
        ),
        on_own_disks="Each worker gets a copy. No shared volume needed",
        evidence=(
            "keras 3.15.1 with jax 0.10.2: real saves and resumes of both forms,"
            " one or two kills at a save, once shipped while it trained and back on empty disks"
        ),
    ),
    Guide(
        products=("Keras BackupAndRestore",),
        recognised_by="`latest.weights.h5` with `training_metadata.json`",
        marker=(
            "`training_metadata.json`, written after the weights: weights newer than it are of"
            " another epoch, and the pair is refused"
        ),
        container=_CONTAINER,
        set_rule="both files",
        metadata="epoch and batch from the JSON, step from the optimizer's count of iterations",
        resumes="`BackupAndRestore(dir)` in `fit(callbacks=…)`: nothing else is needed",
        full_resume_needs=(
            "Keras overwrites its only copy in place, so that a kill leaves none on the disk: every"
            " finished backup is copied before the next one begins, and both files come back"
            " together. `double_checkpoint=True` adds Keras's own spare copy, which is kept but"
            " never chosen here. It resumes at the beginning of an epoch, also from a backup of"
            " `save_freq=<batches>`"
        ),
        on_own_disks="Each worker gets a copy. No shared volume needed",
        evidence=(
            "keras 3.15.1 with jax 0.10.2: real backups and resumes,"
            " one or two kills at a save, once shipped while it trained and back on empty disks"
        ),
    ),
)
