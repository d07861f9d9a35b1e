"""Guide of `layout: fastai`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("fastai",),
        recognised_by=(
            "`*.pth` with exactly `model` and `opt`, the latter in fastai's form. Without"
            " `with_opt=True`, which is not its default, a file is weights alone and falls under"
            " `torch`"
        ),
        marker="none: fastai writes the final name from the first byte on",
        container="every member's CRC-32, the end record, the exact size",
        set_rule="one file is one save",
        metadata="the epoch from the name (`model_3.pth`); there is none in the file",
        resumes=(
            "Your script: `SaveModelCallback(every_epoch=True, with_opt=True)`, then on a start"
            " `learn.load(<name>, with_opt=True)` and `fit(n, start_epoch=E + 1)`, with the path"
            " from `RTJ_RESUME_CHECKPOINT`. `start_epoch` alone loads nothing"
        ),
        full_resume_needs=(
            "`with_opt=True`. fastai saves no scheduler, RNG state or position in the data: a"
            " one-cycle schedule must be given the same length again"
        ),
        on_own_disks="Rank 0 writes; each rank gets a copy. No shared volume needed",
        evidence=(
            "fastai 2.8.12 on torch 2.15.0: real saves and resumes,"
            " one or two kills at a save, once shipped while it trained and back on empty disks"
        ),
    ),
)
