"""Guide of `layout: torchtune`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("torchtune",),
        recognised_by=(
            "`epoch_E/` or `step_S/` with weights, and `recipe_state.pt` inside or in"
            " `recipe_state/` beside them"
        ),
        marker="the index of sharded weights; `.metadata` for its DistributedCheckpointer",
        container=(
            "safetensors by size, files of torch.save by every member's CRC-32, shards as of DCP"
        ),
        set_rule=(
            "weights, and the recipe's state that states them: `epochs_run` is the epoch plus one."
            " A directory without its own is weights only, used by consent alone"
        ),
        metadata="epoch or step from the directory's name, `steps_run` from the recipe's state",
        resumes=(
            "It finds `recipe_state/recipe_state.pt` by itself, but must be told whose weights go"
            ' with it: `checkpoint.resumeArgs: ["resume_from_checkpoint=True",'
            ' "checkpointer.checkpoint_files=[$(RTJ_RESUME_CHECKPOINT)/model-00001-of-00001'
            '.bin]"]`'
            " with the names of your weights"
        ),
        full_resume_needs=(
            "the recipe's state (optimizer, seed, epochs run), which each save writes over the one"
            " before: it is copied before the next one begins"
        ),
        on_own_disks="Rank 0 writes; each rank gets all files. DCP directories as of DCP",
        evidence=(
            "torchtune 0.6.1 on torch 2.15.0 with torchao 0.9.0: real saves of its own form"
            " and resumes after a restore, driven without a recipe, two kills at a save, once"
            " shipped while it trained and back on an empty disk. Its HF and"
            " Meta checkpointers write the same tree; those and"
            " its DCP directories, adapters, and `step_S/` are from source only"
        ),
    ),
)
