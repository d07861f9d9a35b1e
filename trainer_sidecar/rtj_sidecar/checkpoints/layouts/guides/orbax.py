"""Guide of `layout: orbax`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("Orbax CheckpointManager",),
        recognised_by=(
            "a directory with `_CHECKPOINT_METADATA` or `_METADATA`, `N/` of a manager or any of a"
            " Checkpointer; `N.orbax-checkpoint-tmp/` is one that did not finish"
        ),
        marker=(
            "the rename to the final name, and `commit_timestamp_nsecs` in"
            " `_CHECKPOINT_METADATA`; no part may still have the temporary name"
        ),
        container=(
            "JSON files parse; manifests and single nodes of OCDBT match their CRC-32C and length,"
            " none is empty. Of the arrays themselves nothing is proved"
        ),
        set_rule=(
            "every item that `item_handlers` in `_CHECKPOINT_METADATA` names; in each the files of"
            " every process that described arrays, with its manifest"
        ),
        metadata=(
            "step from the directory's name; metrics of the manager, epoch and loss of items saved"
            " by JsonSave; whether the tree has an optimizer's state"
        ),
        resumes=(
            "`manager.restore(manager.latest_step(), …)`: nothing else is needed. Orbax never"
            " removes what a killed save left; it is set aside before a start"
        ),
        full_resume_needs=(
            "what the application saves: parameters, `opt_state`, RNG key, the data iterator's item"
        ),
        on_own_disks=(
            "Several processes need one shared directory: Orbax renames and merges in it. With one"
            " process no shared volume is needed"
        ),
        evidence=(
            "orbax-checkpoint 0.12.8 with jax 0.10.2, one process: real saves and resumes,"
            " one or two kills at a save, once shipped while it trained and back on empty disks."
            " Several processes from source only"
        ),
    ),
)
