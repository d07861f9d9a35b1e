"""Guides of `layout: lightning`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

_RESUMES = (
    '`trainer.fit(model, ckpt_path="last")`, or `--ckpt_path last` with LightningCLI, with'
    ' `ModelCheckpoint(save_last=True)` or `"link"`: then nothing else is needed. `last` is the'
    " newest file of that name, and without one Lightning begins anew without an error: it is"
    " rebuilt as the link or copy that it was. Without `save_last`:"
    ' `checkpoint.resumeArgs: ["--ckpt_path", "$(RTJ_RESUME_CHECKPOINT)"]`'
)
_NEEDS = (
    "optimizer, scheduler and loop states are in every full save. Lightning saves no RNG state, and"
    " the position in the data only of stateful data loaders: both are reported as missing"
)

GUIDES = (
    Guide(
        products=("Lightning 2.x",),
        recognised_by=(
            "a file of torch.save, named `*.ckpt`, that states `pytorch-lightning_version`; torn"
            " ones by the names `epoch=E-step=S.ckpt`, `last.ckpt`, `hpc_ckpt_N.ckpt`. Each file is"
            " a save, also `…-v1.ckpt` beside one of the same step; a `last.ckpt` that holds the"
            " same step is its alias"
        ),
        marker=(
            "none. Lightning writes to `$TMPDIR` and moves: a rename only where that is the same"
            " disk, else a copy onto the final name. `TMPDIR` is therefore set to a hidden"
            " directory on the checkpoint volume where this layout is named"
            " (`checkpoint.layout: lightning`), every pod has its own disk, and the template does"
            " not set it; else a torn file is recognised by its bytes"
        ),
        container="every member's CRC-32, the end record, the exact size",
        set_rule="one file is one save",
        metadata=(
            "step and epoch, which states it holds, from the content; a loss only from the name"
            " (`val_loss=0.25`), for the score in it is a tensor"
        ),
        resumes=_RESUMES,
        full_resume_needs=_NEEDS,
        on_own_disks="Rank 0 writes; each rank gets a copy. No shared volume needed",
        evidence=(
            "lightning 2.6.6 with torch 2.15.0: real saves, kills at random moments (also with"
            " `TMPDIR` on another disk), real resumes with the right step and equal tensors"
        ),
    ),
    Guide(
        products=("Lightning FSDP/ModelParallel",),
        recognised_by="a directory `X.ckpt/` of DCP files, by its name or by `meta.pt` in it",
        marker="`meta.pt`, written after `.metadata`; no shard is newer than `.metadata`",
        container="as of DCP, and `meta.pt` as a file of torch.save",
        set_rule="every file that `.metadata` names",
        metadata="step and epoch from `meta.pt`",
        resumes=_RESUMES,
        full_resume_needs=_NEEDS,
        on_own_disks=(
            "Each rank writes its shards; the union of all parts is judged, and loading reads the"
            " shards of all: each rank gets all files"
        ),
        evidence=(
            "from source only (lightning 2.6.6): its strategies need a GPU. The DCP files of the"
            " tests are real ones, `meta.pt` is made in Lightning's form"
        ),
    ),
)
