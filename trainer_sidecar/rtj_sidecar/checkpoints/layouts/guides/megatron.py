"""Guides of `layout: megatron`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

_RESUMES = (
    "`--load` with the directory of `--save` reads `latest_checkpointed_iteration.txt`, which is"
    " written anew for the chosen save on restore, also where it was empty or lost (Megatron exits"
    " then). Always give `--load`; without it training begins anew. `--ckpt-step N` names one:"
    ' `checkpoint.resumeArgs: ["--ckpt-step", "$(RTJ_RESUME_STEP)"]`'
)

GUIDES = (
    Guide(
        products=("Megatron-LM torch_dist",),
        recognised_by=(
            "`iter_0000010/` (or `release/`) with `common.pt`, `metadata.json` or DCP files; also"
            " `torch_dcp` and `fsdp_dtensor`, which are DCP files alone"
        ),
        marker=(
            "`metadata.json`, written last, parses; and `.metadata` as for DCP. The tracker is only"
            " a hint"
        ),
        container="CRC-32 of `common.pt`, every slice of the DCP shards",
        set_rule="every file that `.metadata` names, and `common.pt`",
        metadata=(
            "iteration from the directory's name; from `common.pt`: consumed samples, world size"
        ),
        resumes=_RESUMES,
        full_resume_needs=(
            "the distributed optimizer inside (not `--no-save-optim`), RNG (not `--no-save-rng`)."
            " The position in the data is computed from the consumed samples; with an external"
            " loader `--dataloader-save` below the checkpoint path"
        ),
        on_own_disks=(
            "Every rank reads the tracker, `common.pt`, `.metadata` and the shards that hold its"
            " slices. All files are brought to every rank. No shared volume needed"
        ),
        evidence=(
            "megatron-core 0.16.1's `dist_checkpointing`, one process with CUDA calls stubbed: real"
            " saves, kills, loads. What megatron.training writes around it: from its source only"
        ),
    ),
    Guide(
        products=("Megatron legacy torch",),
        recognised_by="`iter_0000010/mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt`",
        marker="none; the tracker is only a hint",
        container="CRC-32 of every file",
        set_rule=(
            "a model file for each rank of the grid (tensor x pipeline x expert) that the arguments"
            " in the file state, `distrib_optim.pt` beside each where they ask for it, no gap in"
            " what is numbered"
        ),
        metadata="iteration, consumed samples, world size from the arguments in the file",
        resumes=_RESUMES,
        full_resume_needs="as above",
        on_own_disks=(
            "Each rank loads its own grid position's files, which the first data-parallel rank"
            " wrote, and the tracker. All files are brought to every rank. No shared volume needed"
        ),
        evidence="from the source of Megatron-LM only, and hand-made trees",
    ),
)
