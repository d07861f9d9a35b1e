"""Guide of `layout: composer`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("Composer",),
        recognised_by=(
            "`ep{E}-ba{B}-rank{r}.pt`, or any `*.pt` whose content is Composer's `state` and `rng`;"
            " with FSDP the directory `ep{E}-ba{B}/` of DCP files"
        ),
        marker="none for files, `.metadata` for a directory; `latest-rank{r}.pt` is a hint",
        container="every member's CRC-32, the end record, the exact size; shards as of DCP",
        set_rule=(
            "rank 0's file alone, or one of every rank where others have one, or where the file"
            " holds a part of sharded tensors (`rng` says how many ranks there were; only releases"
            " for torch 1 wrote such files); every file that a link `latest-rank{r}.pt` leads to;"
            " every file that `.metadata` names"
        ),
        metadata="epoch and batch from `state.timestamp`, world size, and which states it holds",
        resumes=(
            "`Trainer(autoresume=True, run_name=…, save_folder=…)` follows `latest-rank{r}.pt` in"
            " the folder: nothing else is needed. The link is made anew with every restore, for a"
            " kill between its removal and its making leaves none, and Composer then begins anew"
            " without an error. Else `load_path`:"
            ' `checkpoint.resumeArgs: ["--load_path", "$(RTJ_RESUME_CHECKPOINT)"]`'
        ),
        full_resume_needs=(
            "model, optimizers, schedulers, RNG state and timestamp are in every file of"
            " `save_weights_only=False`; the position in the data only with a data loader that has"
            " a state. Composer continues an epoch at its batch"
        ),
        on_own_disks=(
            "Each rank gets all files. With FSDP the union of all parts is judged, and loading"
            " reads the shards of all"
        ),
        evidence=(
            "mosaicml 0.32.1 on torch 2.15.0 (it asks for an older torch; it was run without the"
            " older one): real saves and resumes of files,"
            " one or two kills at a save, once shipped while it trained and back on empty disks."
            " FSDP from source only"
        ),
    ),
)
