"""Guides of `layout: dcp`."""

from __future__ import annotations

from rtj_sidecar.checkpoints.layouts.guide import Guide

GUIDES = (
    Guide(
        products=("DCP sync", "DCP async_save"),
        recognised_by="a directory with `.metadata` or `__<rank>_<i>.distcp`",
        marker=(
            "`.metadata`, written last and renamed into place: it parses, and no shard is younger"
            " than it (saved again into the same directory, the old one stays beside new shards)"
        ),
        container=(
            "every archive in the chain of each shard, its CRC-32, and that each slice which"
            " `.metadata` places is one of them"
        ),
        set_rule=(
            "every file that `.metadata` names, with exactly the size that it states; shards left"
            " from a larger world are no part of it"
        ),
        metadata=(
            "names of all tensors and objects; step, epoch and loss where they were saved as single"
            " numbers, plain ones or tensors without dimensions. DCP gives a number to whichever"
            " rank has the fewest bytes: with disks of their own the ranks tell it together"
        ),
        resumes=(
            "Your script calls `dcp.load(checkpoint_id=os.environ['RTJ_RESUME_CHECKPOINT'])`, or"
            " loads the newest directory of its own"
        ),
        full_resume_needs=(
            "model, optimizer, scheduler, loader and RNG state, under keys that your script chooses"
        ),
        on_own_disks=(
            "Every rank reads `.metadata`, and the shards that hold its slices: after a change of"
            " placement or world size those are of other ranks. All files are brought to every"
            " rank. No shared volume needed. Saved again into the same directory, what a restore"
            " brought of the other ranks is part of no later save"
        ),
        evidence=(
            "torch 2.15.0, two gloo processes, sync and async_save: cut off at every file, one kill"
            " each at a save in a shared directory, and one with disks of their own, shipped while"
            " it trained and back on empty disks: `dcp.load` with the right step and equal tensors."
            " Saved again into the same directory: both ways once, too, by the step that one"
            " rank's shard holds and another's `.metadata` places"
        ),
    ),
    Guide(
        products=("torchtitan",),
        recognised_by="`<dump_folder>/checkpoint/step-N/`: DCP, or for the last step safetensors",
        marker="as above; torchtitan itself looks for `.metadata` or the index alone",
        container="as above",
        set_rule="as above; the last step in HF format as of DCP's HuggingFaceStorageWriter",
        metadata="step from the directory's name",
        resumes=(
            "By itself: the highest step in the folder with `.metadata` or an index, which is the"
            " chosen one: newer and torn ones are set aside. `--checkpoint.enable` must be on; to"
            ' name one: `checkpoint.resumeArgs: ["--checkpoint.load_step", "$(RTJ_RESUME_STEP)"]`'
        ),
        full_resume_needs=(
            "`model`, `optimizer`, `lr_scheduler`, `dataloader`, `train_state`; the last step has"
            " the model alone unless `checkpoint.last_save_model_only` is False"
        ),
        on_own_disks=(
            "as above; every rank looks for the highest step on its own disk, and finds the same"
            " one, as all files are brought to every rank. No shared volume needed"
        ),
        evidence="from the source of torchtitan 0.3.0; its inner DCP as above",
    ),
)
