"""Guides of `layout: dlrover`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("DLRover flash",),
        recognised_by=(
            "`dlrover_latest.txt` or `._dlrover_ckpt_stage/` beside saves of another layout"
            " (Megatron, DeepSpeed, the Trainer, DCP, torch files such as `100/rank_0.pt`)"
        ),
        marker=(
            "the tracker says this step or a later one, and no done files of it are left. What is"
            " in the stage directory was not committed. A tracker without a step in it (written in"
            " place on a full disk) says nothing: the done files and the inner layout decide"
        ),
        container="as of the inner layout; FSDP shards of DLRover are raw memory: not checkable",
        set_rule="as of the inner layout",
        metadata="as of the inner layout",
        resumes=(
            "`checkpointer.load_checkpoint()` reads the tracker, which is written anew for the"
            " chosen save on restore, with those of Megatron and DeepSpeed. A state that is still"
            " in the agent's shared memory would go first: a new pod has none"
        ),
        full_resume_needs="as of the inner layout",
        on_own_disks=(
            "Needs a shared volume: its agent on node 0 counts the done files of all nodes in one"
            " directory, and commits nothing where it cannot see them"
        ),
        evidence="from the source of dlrover 0.6.1 only, and hand-made trees",
    ),
)
