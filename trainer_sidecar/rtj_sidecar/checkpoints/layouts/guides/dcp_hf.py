"""Guides of `layout: dcp-hf`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("DCP HuggingFaceStorageWriter",),
        recognised_by="`shard-0000R-model-0000i-of-0000n.safetensors` below a numbered directory",
        marker=("with consolidation `model.safetensors.index.json`, written last; without it none"),
        container="exact sizes by the headers; the format has no checksum",
        set_rule=(
            "a shard of every rank, and every consolidated file that the index names. Which files a"
            " rank has a part of, the names do not tell"
        ),
        metadata="step from the directory's name",
        resumes="Your script: `from_pretrained(os.environ['RTJ_RESUME_CHECKPOINT'])`",
        full_resume_needs=(
            "A DCP save beside it: these are weights only, resumed from only where you consent to"
            " weights"
        ),
        on_own_disks=(
            "The consolidation reads all ranks' shards: the writer itself needs a shared volume"
            " there. Without consolidation none is needed"
        ),
        evidence="torch 2.15.0, two gloo processes: real saves and loads, cut off at every file",
    ),
)
