"""Guides of `layout: safetensors`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("safetensors",),
        recognised_by=(
            "`*.safetensors` with a step in the file's or a directory's name; without one it is an"
            " output, no save"
        ),
        marker="sharded: `*.safetensors.index.json`, written last; a single file has none",
        container=(
            "the exact size that the header states, without holes. The format has no checksum:"
            " zeros in the body are caught only by the SHA-256 taken when it was shipped"
        ),
        set_rule="every file that the index names, and their sizes add up to `total_size`",
        metadata="step from the name; `__metadata__` of the header",
        resumes="Your script decides; the path is in `RTJ_RESUME_CHECKPOINT`",
        full_resume_needs=(
            "More than safetensors: without an optimizer's file beside them these are weights"
            " only, and resumed from only where you consent to weights"
        ),
        on_own_disks="Each rank gets back all files. No shared volume needed",
        evidence="safetensors 0.8.0: real files, single and sharded",
    ),
)
