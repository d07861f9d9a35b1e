"""A tiny Llama, from random weights, trained by the Hugging Face Trainer on made-up text.

    python train.py --output_dir checkpoints --max_steps 60
    python train.py --output_dir checkpoints --max_steps 60 --resume_from_checkpoint True
    python train.py --output_dir checkpoints --resume_from_checkpoint checkpoints/checkpoint-20

Every option of TrainingArguments can be given; `True` lets the Trainer find its own newest
checkpoint, as `trainer.train(resume_from_checkpoint=True)` does.
"""

import hashlib
import time
from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import (
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

VOCABULARY = 64
LENGTH = 16


@dataclass
class ModelArguments:
    hidden_size: int = field(default=32)
    layers: int = field(default=2)
    samples: int = field(default=512)
    step_seconds: float = field(default=0.0, metadata={"help": "slow every step down"})


class Sequences(Dataset):
    """Arithmetic sequences modulo the vocabulary."""

    def __init__(self, samples, seed):
        generator = torch.Generator().manual_seed(seed)
        start = torch.randint(VOCABULARY, (samples, 1), generator=generator)
        stride = torch.randint(1, 5, (samples, 1), generator=generator)
        self.tokens = (start + stride * torch.arange(LENGTH)) % VOCABULARY

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Progress(TrainerCallback):
    """Prints a line per step, and takes its time if asked to."""

    def __init__(self, step_seconds):
        self.step_seconds = step_seconds

    def on_step_end(self, args, state, control, **kwargs):
        print(f"step {state.global_step}/{state.max_steps}", flush=True)
        time.sleep(self.step_seconds)


def weights_hash(model):
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def main():
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    parser.set_defaults(
        output_dir="/checkpoints",
        max_steps=60,
        save_steps=10,
        logging_steps=1,
        per_device_train_batch_size=8,
        learning_rate=3e-3,
        report_to="none",
        disable_tqdm=True,
    )
    ours, args = parser.parse_args_into_dataclasses()
    torch.manual_seed(args.seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=ours.hidden_size,
        intermediate_size=2 * ours.hidden_size,
        num_hidden_layers=ours.layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=LENGTH,
    )
    trainer = Trainer(
        model=LlamaForCausalLM(config),
        args=args,
        train_dataset=Sequences(ours.samples, args.seed),
        callbacks=[Progress(ours.step_seconds)],
    )
    resume = args.resume_from_checkpoint
    trainer.train(resume_from_checkpoint=True if resume in ("True", "true") else resume)
    print(f"final weights sha256 {weights_hash(trainer.model)}", flush=True)


if __name__ == "__main__":
    main()
