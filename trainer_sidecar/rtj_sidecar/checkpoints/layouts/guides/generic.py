"""Guides of `layout: generic`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("anything else",),
        recognised_by="what `checkpoint.include` names, with a step in a name or in a JSON file",
        marker="none",
        container="what single files can prove of themselves (zip, safetensors, JSON)",
        set_rule="the same file names as the saves before it",
        metadata="step, epoch and loss from small JSON files and torch files",
        resumes="Your script decides; the path is in `RTJ_RESUME_CHECKPOINT`",
        full_resume_needs="Cannot be told",
        on_own_disks="Each rank gets back all files. No shared volume needed",
        evidence="hand-made trees",
    ),
)
