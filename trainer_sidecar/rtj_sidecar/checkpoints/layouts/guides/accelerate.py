"""Guides of `layout: accelerate`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("Accelerate save_state",),
        recognised_by=(
            "a directory with `random_states_R.pkl`, `optimizer.bin`, `scheduler.bin`,"
            " `custom_checkpoint_J.pkl` or `pytorch_model_fsdp_0/` in it, and none of the Trainer's"
            " files; siblings of the same name pattern. `checkpoints/checkpoint_K` in any case"
        ),
        marker=(
            "none; `random_states_0.pkl` comes after all but the `custom_checkpoint_J.pkl`, and a"
            " save without it is refused. FSDP: the `.metadata` of both DCP directories"
        ),
        container="CRC-32 of every torch file, exact sizes of safetensors, DCP shards by slice",
        set_rule=(
            "random states of every rank, no gap in what is numbered, the same files as the saves"
            " before it; FSDP and DeepSpeed directories by their own rules"
        ),
        metadata=(
            "step or epoch from your directory's name (`step_N`, `epoch_N`), else `step`, `epoch`"
            " of a registered object. K of `checkpoint_K` counts saves, not steps"
        ),
        resumes=(
            '`checkpoint.resumeArgs: ["--resume_from_checkpoint", "$(RTJ_RESUME_CHECKPOINT)"]`, as'
            " the example scripts take it; in code `accelerator.load_state(os.environ"
            "['RTJ_RESUME_CHECKPOINT'])`. With automatic naming `load_state()` takes the highest K,"
            " which is the chosen one; set `accelerator.project_configuration.iteration` to K+1"
            " after it, or the next save refuses to write over `checkpoint_0`"
        ),
        full_resume_needs=(
            "All of it. The position in the data is in it only with a stateful loader"
            " (`use_stateful_dataloader=True`); the step only in the directory's name or in an"
            " object that you register"
        ),
        on_own_disks=(
            "Every rank loads model, optimizer and scheduler that the main process wrote, and its"
            " own random states. All files are brought to every rank. No shared volume needed"
        ),
        evidence=(
            "accelerate 1.15.0, one process, two gloo ranks, and FSDP sharded and full by its own"
            " code on a model that torch sharded on CPU: shipped while it trained (ranks with disks"
            " of their own), one kill each at a save, back on empty disks, `load_state` with equal"
            " tensors. In one of the full FSDP's loads the process aborted. DeepSpeed directories"
            " inside from its source and hand-made"
        ),
    ),
)
