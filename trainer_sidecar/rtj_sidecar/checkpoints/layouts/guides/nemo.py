"""Guides of `layout: nemo`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("NeMo 1/2",),
        recognised_by=(
            "`consumed_samples=` in a directory's or `.ckpt` file's name, a sibling"
            " `<stem>-unfinished`, or a directory with `weights/` and `context/`"
        ),
        marker=(
            "the sibling `<stem>-unfinished` must be gone: it is there while a save is written and"
            " while it is removed. Inside, `metadata.json` and `.metadata` as of Megatron"
        ),
        container="CRC-32 of torch files, every slice of the DCP shards",
        set_rule=(
            "every file that `.metadata` names; else the same files as the saves before it, one of"
            " every model-parallel rank that those had"
        ),
        metadata=(
            "step, consumed samples and loss from the name; step from a `.ckpt` file's content"
        ),
        resumes=(
            "`resume_if_exists=True` (NeMo 2: `AutoResume(resume_if_exists=True)`) takes the name"
            " that ends with `-last`. Where the chosen save has no such name, a link of that name"
            " is made on restore. Set `resume_ignore_no_checkpoint=True` for the first start"
        ),
        full_resume_needs="`save_optim_on_train_end` or periodic saves: the optimizer is inside",
        on_own_disks=(
            "As Megatron: every rank reads `common.pt`, `.metadata` and the shards of its slices;"
            " all files are brought to every rank. NeMo's own clean-up is done by global rank 0"
            " alone, on its disk only"
        ),
        evidence="from the source of NeMo only, and hand-made trees: it does not install here",
    ),
)
