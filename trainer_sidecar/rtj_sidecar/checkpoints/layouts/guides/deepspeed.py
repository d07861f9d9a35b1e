"""Guides of `layout: deepspeed`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

_RECOGNISED = (
    "a directory with `mp_rank_MM_model_states.pt`, `zero_pp_rank_R_mp_rank_MM_*.pt`,"
    " `layer_*-model_states.pt`: the tag directory, mostly `global_stepN`"
)
_MARKER = (
    "none: `latest` is written before slower ranks have written their files, so it is only a hint."
    " It is written anew on restore, also where it was never there"
)
_CONTAINER = "CRC-32 of every file"
_METADATA = (
    "`global_steps`, `dp_world_size`, `mp_world_size`, and `epoch`, `loss` where your client_state"
    " has them"
)
_RESUMES = (
    "`engine.load_checkpoint(save_dir)` without a tag reads `latest`, which names the chosen save."
    " A script that begins anew unless told: `checkpoint.resumeArgs:"
    ' ["--load", "$(RTJ_RESUME_CHECKPOINT)"]` gives the tag directory'
)
_NEEDS = (
    "All ranks' files. DeepSpeed saves no RNG state and no position in the data: put them into"
    " client_state"
)
_OWN_DISKS = (
    "Each rank loads its own partition of the optimizer, and model states that another rank wrote;"
    " with another world size, everybody's. A pod gets its own partitions where the save proves"
    " that they are all it opens (docs/many-ranks.md), else all files. No shared volume needed;"
    " `use_node_local_storage` is fine, too"
)
_EVIDENCE = (
    "deepspeed 0.19.8 with torch 2.15.0 on CPU, two gloo ranks with disks of their own, each stage"
    " 0 to 3: shipped while it trained, one kill at a save, back on empty disks,"
    " `load_checkpoint` with the right step and equal optimizer states. Cut off at every file:"
    " ZeRO-0 and 3. No GPU"
)

GUIDES = (
    Guide(
        products=("DeepSpeed ZeRO-0",),
        recognised_by=_RECOGNISED,
        marker=_MARKER,
        container=_CONTAINER,
        set_rule=(
            "model states of each of the `mp_world_size` ranks; each layer's and expert's files"
        ),
        metadata=_METADATA,
        resumes=_RESUMES,
        full_resume_needs=_NEEDS,
        on_own_disks=_OWN_DISKS,
        evidence=_EVIDENCE,
    ),
    Guide(
        products=("DeepSpeed ZeRO-1/2",),
        recognised_by=_RECOGNISED,
        marker=_MARKER,
        container=_CONTAINER,
        set_rule=(
            "in addition an optimizer file of each of the `dp_world_size` x `mp_world_size` ranks"
        ),
        metadata=_METADATA,
        resumes=_RESUMES,
        full_resume_needs=_NEEDS,
        on_own_disks=_OWN_DISKS,
        evidence=_EVIDENCE,
    ),
    Guide(
        products=("DeepSpeed ZeRO-3",),
        recognised_by=_RECOGNISED,
        marker=_MARKER,
        container=_CONTAINER,
        set_rule="in addition a model file of each rank",
        metadata=_METADATA,
        resumes=_RESUMES + ". A change of the world size needs DeepSpeed's universal checkpoint",
        full_resume_needs=_NEEDS,
        on_own_disks=_OWN_DISKS,
        evidence=_EVIDENCE + "; NVMe offload, MoE and pipeline names from its source only",
    ),
)
