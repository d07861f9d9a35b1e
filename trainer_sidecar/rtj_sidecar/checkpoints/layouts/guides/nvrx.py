"""Guides of `layout: nvrx-local`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("NVRx local",),
        recognised_by="`<session>/<rank>/iter_0000010_<rank>_local.pt`",
        marker="the rename from `.dirty`: a rank with nothing but a `.dirty` file did not finish",
        container="CRC-32 of every file",
        set_rule="every rank's file, as its own or as a replica in a peer's directory",
        metadata="iteration from the name",
        resumes=(
            "`LocalCheckpointManager(root).find_latest()` takes the newest iteration that all ranks"
            " have, which is the chosen one; in Megatron `--non-persistent-ckpt-type local`"
        ),
        full_resume_needs="What your script puts into the state dict; it cannot be told safely",
        on_own_disks=(
            "Made for it: each rank needs its own file, and gets it back on any node. No shared"
            " volume needed"
        ),
        evidence=(
            "nvidia-resiliency-ext 0.4.1, two gloo ranks: real saves and `find_latest`,"
            " one or two kills at a save, once shipped while it trained from one directory"
        ),
    ),
)
