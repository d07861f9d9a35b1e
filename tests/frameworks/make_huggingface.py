"""The Hugging Face Trainer: one process, DDP, PEFT, and DeepSpeed inside.

See `script` for how it is called. It resumes by `resume_from_checkpoint=True`, which takes the
highest number that it finds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ranks
import script

CASES = {
    "single": {"layout": "hf-trainer"},
    "ddp": {"layout": "hf-trainer", "ranks": 2, "disks": 2},
    "peft": {"layout": "hf-trainer"},
}


def trainer(directory: Path, *, saves: int | None, many: bool, peft: bool, **more: Any) -> Any:
    import torch
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    torch.manual_seed(1)
    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=4096,
        max_position_embeddings=64,
    )
    model: Any = LlamaForCausalLM(config)
    if peft:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=256, target_modules=["q_proj", "v_proj"]))

    class Told(Trainer):
        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            tensors = tensors_of(self, many=many)
            if self.args.process_index == 0:
                script.saving(self.state.global_step, tensors)
            super()._save_checkpoint(model, trial)
            if self.args.process_index == 0:
                script.saved(self.state.global_step)

    class Resumed(TrainerCallback):
        """Says what was loaded, before the first step, and ends."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            pass

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if os.environ.get("TELL_RESUMED"):
                tensors = tensors_of(told, many=many)
                if args.process_index == 0:
                    script.resumed(state.global_step or None, tensors)
                os._exit(0)

    arguments = TrainingArguments(
        output_dir=str(directory),
        per_device_train_batch_size=2,
        max_steps=saves if saves else 100000,
        save_steps=1,
        save_total_limit=3,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        learning_rate=1e-3,
        **more,
    )
    tokens = torch.randint(0, 4096, (16,))
    data = [{"input_ids": tokens, "labels": tokens}] * 4096
    told = Told(model=model, args=arguments, train_dataset=data, callbacks=[Resumed()])
    return told


def tensors_of(told: Any, *, many: bool) -> dict[str, Any]:
    model = told.model_wrapped if hasattr(told.model_wrapped, "module") else told.model
    held: dict[str, Any] = {"model": _floats(dict(model.named_parameters()))}
    if told.is_deepspeed_enabled:
        # The Trainer's optimizer is a shell there; the engine holds the state of this rank.
        held = {"optimizer": _floats(told.deepspeed.optimizer.state_dict())}
    elif told.optimizer is not None:
        held["optimizer"] = told.optimizer.state_dict().get("state", {})
    names = {key.replace("module.", ""): value for key, value in script.flat(held).items()}
    return ranks.together(names) if many else names


def _floats(value: Any) -> Any:
    """bfloat16 is no type of numpy; what is neither tensor nor number is left out."""
    if hasattr(value, "is_floating_point"):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_floats(item) for item in value]
    return value if isinstance(value, int | float) else None


def case(*, world: int = 1, peft: bool = False, **more: Any) -> script.Case:
    def train(directory: Path, saves: int | None) -> None:
        if world > 1:
            ranks.begin(world)
        trainer(directory, saves=saves, many=world > 1, peft=peft, **more).train()

    def resume(directory: Path) -> None:
        os.environ["TELL_RESUMED"] = "1"
        if world > 1:
            ranks.begin(world)
        told = trainer(directory, saves=None, many=world > 1, peft=peft, **more)
        told.train(resume_from_checkpoint=True)

    return script.Case(train, resume)


if __name__ == "__main__":
    script.main({"single": case(), "ddp": case(world=2), "peft": case(peft=True)})
