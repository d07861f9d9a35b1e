"""Guides of `layout: hf-trainer`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

_RECOGNISED = "`checkpoint-N/` with a file that the Trainer writes"
_MARKER = "`trainer_state.json`, written last by rank 0: it parses and its `global_step` is N"
_CONTAINER = "CRC-32 of every torch file, exact sizes of safetensors, JSON that parses"
_METADATA = (
    "step, epoch, loss, best metric from `trainer_state.json`; what you asked for from"
    " `training_args.bin`"
)
_RESUMES = (
    "`trainer.train(resume_from_checkpoint=True)` takes the highest N, which is the chosen one:"
    " newer and torn ones are set aside. Scripts with the flag:"
    ' `checkpoint.resumeArgs: ["--resume_from_checkpoint", "$(RTJ_RESUME_CHECKPOINT)"]`'
)
_NEEDS = "All of the set; `scaler.pt` with fp16. The position in the data is computed from the step"
_OWN_DISKS = (
    "Every rank loads model, optimizer and scheduler that rank 0 wrote, and its own RNG file. All"
    " files are brought to every rank. No shared volume needed"
)

GUIDES = (
    Guide(
        products=("HF Trainer, 1 process", "HF Trainer, R ranks DDP"),
        recognised_by=_RECOGNISED,
        marker=_MARKER,
        container=_CONTAINER,
        set_rule=(
            "model (all shards of the index), optimizer, scheduler, RNG state of every rank; model"
            " alone where `training_args.bin` says `save_only_model`. The Trainer itself resumes"
            " without an error where one of these is missing"
        ),
        metadata=_METADATA,
        resumes=_RESUMES,
        full_resume_needs=_NEEDS,
        on_own_disks=_OWN_DISKS,
        evidence=(
            "transformers 5.24.0, accelerate 1.15.0, torch 2.15.0, one process and two gloo ranks:"
            " shipped while it trained (the two with disks of their own), one kill each at a save,"
            " back on empty disks, resumed with the right step and equal tensors; cut off at every"
            " file"
        ),
    ),
    Guide(
        products=("HF Trainer + PEFT",),
        recognised_by=_RECOGNISED,
        marker=_MARKER,
        container=_CONTAINER,
        set_rule=(
            "as above, with `adapter_model.safetensors` and its `adapter_config.json`, directly"
            " inside or in a directory for each adapter, as the model"
        ),
        metadata=_METADATA,
        resumes=_RESUMES,
        full_resume_needs=_NEEDS
        + ". The base model is loaded by your script, it is not in the save",
        on_own_disks=_OWN_DISKS,
        evidence=(
            "peft 0.21.2 with transformers 5.24.0, one process: cut off at every file, two kills at"
            " a save, resumed after our restore with the right step and equal tensors"
        ),
    ),
    Guide(
        products=("HF Trainer + DeepSpeed",),
        recognised_by=_RECOGNISED,
        marker=_MARKER,
        container=_CONTAINER,
        set_rule=(
            "RNG state of every rank, and in `global_stepN/` the files of all ranks that its model"
            " states count; the scheduler is in there or in `scheduler.pt`"
        ),
        metadata=_METADATA + "; world size from DeepSpeed's model states",
        resumes=_RESUMES + ". The inner `latest` is written anew where it was lost",
        full_resume_needs=_NEEDS,
        on_own_disks=(
            "Each rank loads its own partition and what rank 0 wrote. All files are brought to all"
            " ranks. No shared volume needed"
        ),
        evidence=(
            "transformers 5.24.0 with deepspeed 0.19.8 on CPU, ZeRO-2, two gloo ranks with disks of"
            " their own: shipped while it trained, one kill at a save, back on empty disks, resumed"
            " with the right step and equal states; cut off at every file. Other stages by"
            " DeepSpeed alone"
        ),
    ),
    Guide(
        products=("HF Trainer + FSDP",),
        recognised_by=_RECOGNISED,
        marker=_MARKER + "; sharded: `.metadata` of both inner DCP directories as well",
        container=_CONTAINER + "; every slice of DCP shards",
        set_rule=(
            "sharded: `pytorch_model_fsdp_0/` and `optimizer_0/`, each complete by its `.metadata`;"
            " full: `pytorch_model_fsdp.bin` and `optimizer.bin`; without DCP: every rank's"
            " `pytorch_model_fsdp_0_rankR.bin`, `optimizer_0_rankR.bin`. Scheduler and RNG as above"
        ),
        metadata=_METADATA,
        resumes=_RESUMES,
        full_resume_needs=_NEEDS,
        on_own_disks=(
            "Every rank reads both `.metadata` and the shards that hold its slices; after a change"
            " of the world size those of other ranks. All files are brought to every rank. No"
            " shared volume needed"
        ),
        evidence=(
            "the Trainer's directory from its source, for it wants a GPU there; the FSDP files"
            " inside by accelerate 1.15.0's own code on CPU; hand-made trees"
        ),
    ),
)
