"""Guides of `layout: hf-trainer`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("HF Trainer, 1 process", "HF Trainer, R ranks DDP"),
        recognised_by="`checkpoint-N/` with a file that the Trainer writes",
        marker="`trainer_state.json`, written last by rank 0: it parses and its `global_step` is N",
        container=("CRC-32 of every torch file, exact sizes of safetensors, JSON that parses"),
        set_rule=(
            "model (all shards of the index), optimizer, scheduler, RNG state of every rank; model"
            " alone where `training_args.bin` says `save_only_model`. The Trainer itself resumes"
            " without an error where one of these is missing"
        ),
        metadata="step, epoch, loss, best metric from `trainer_state.json`",
        resumes=(
            "`trainer.train(resume_from_checkpoint=True)` takes the highest N, which is the chosen"
            " one: newer and torn ones are set aside. Scripts with the flag:"
            ' `checkpoint.resumeArgs: ["--resume_from_checkpoint", "$(RTJ_RESUME_CHECKPOINT)"]`'
        ),
        full_resume_needs=(
            "All of the set; `scaler.pt` with fp16. The position in the data is computed from the"
            " step"
        ),
        on_own_disks=(
            "Every rank loads model, optimizer and scheduler that rank 0 wrote, and its own RNG"
            " file. All files are brought to every rank. No shared volume needed"
        ),
        evidence="transformers 5.24.0, accelerate 1.15.0: one process and two gloo ranks",
    ),
)
