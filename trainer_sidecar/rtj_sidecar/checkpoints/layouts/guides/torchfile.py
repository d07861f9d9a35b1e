"""Guides of `layout: torch`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

_RECOGNISED = (
    "`*.pt`, `*.pth`, `*.ckpt`, and `*.bin`, `*.tar` whose bytes are those of torch.save: alone,"
    " with a number in the name (`ckpt_10.pt`), several of one number, or together in a numbered"
    " directory. A file of a fixed name that holds the step of a numbered one (`last.pt`) is an"
    " alias of it. Weights without a step are an output, no save"
)
_SET = (
    "the same file names as the saves before it; where names state a rank, one file of every rank"
)
_RESUMES = (
    "Your script decides. It finds the path in `RTJ_RESUME_CHECKPOINT`; for a script with a flag:"
    ' `checkpoint.resumeArgs: ["--resume", "$(RTJ_RESUME_CHECKPOINT)"]`. One that loads the newest'
    " file of its directory needs nothing: newer and torn ones are set aside before it starts"
)
_NEEDS = (
    "What your script puts in: model, optimizer, scheduler, RNG state, step or epoch. What is not"
    " found by name among the top-level keys is reported as missing"
)

GUIDES = (
    Guide(
        products=("torch.save zip",),
        recognised_by=_RECOGNISED,
        marker="none: torch.save writes the final name from the first byte on",
        container=(
            "every member's CRC-32, the end record, the exact size. Where the writer switched"
            " CRCs off, only sizes and headers"
        ),
        set_rule=_SET,
        metadata=(
            "step, epoch, loss, and whether optimizer, scheduler, scaler and RNG state are in it,"
            " from the top-level keys"
        ),
        resumes=_RESUMES,
        full_resume_needs=_NEEDS,
        on_own_disks=(
            "Each rank gets back all files; one that another rank wrote is copied. No shared"
            " volume needed"
        ),
        evidence="torch 2.15.0: real files, real kills in the middle of a save, real resumes",
    ),
    Guide(
        products=("torch.save legacy",),
        recognised_by=_RECOGNISED,
        marker="none",
        container=(
            "the pickles up to their end, the length of every storage and so the exact size; the"
            " form has no checksum, zeros within a tensor are not seen"
        ),
        set_rule=_SET,
        metadata="as of the zip form",
        resumes=_RESUMES,
        full_resume_needs=_NEEDS,
        on_own_disks="As of the zip form",
        evidence="torch 2.15.0 with `_use_new_zipfile_serialization=False`: real files, real cuts",
    ),
)
