"""Writes real checkpoints with real frameworks, for the tests of `rtj_sidecar.checkpoints`.

Run by an interpreter that has torch, transformers and safetensors:

    python make_checkpoints.py DIRECTORY

Never imported by the project itself, which runs without any of these.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file


class Payload:
    """Runs a command when it is unpickled: nothing of ours may ever do that."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (os.system, (f"touch {self.mark}",))


def train_state(step: int) -> dict:
    torch.manual_seed(step)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randn(4, 64)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
        "epoch": step // 10,
        "loss": 1.0 / (step + 1),
        "rng": torch.get_rng_state(),
    }


def torch_files(out: Path) -> None:
    (out / "torch").mkdir()
    for step in (5, 10, 999, 1000):
        torch.save(train_state(step), out / "torch" / f"ckpt_{step}.pt")
    (out / "reused").mkdir()
    state = train_state(40)
    nano = {
        "model": state["model"],
        "optimizer": state["optimizer"],
        "model_args": {"n_layer": 2},
        "iter_num": 40,
        "best_val_loss": torch.tensor(1.5),
        "config": {"lr": 0.1},
    }
    torch.save(nano, out / "reused" / "ckpt.pt")
    (out / "odd").mkdir()
    torch.save(state["model"], out / "odd" / "weights.pt")
    torch.save(state, out / "odd" / "legacy_7.pt", _use_new_zipfile_serialization=False)
    torch.save(
        {**state, "step": numpy.int64(12), "loss": numpy.float64(0.25)}, out / "odd" / "numpy.pt"
    )
    torch.serialization.set_crc32_options(False)
    torch.save(state, out / "odd" / "nocrc.pt")
    torch.serialization.set_crc32_options(True)
    payload = {"step": 3, "optimizer": Payload(out / "EXECUTED")}
    torch.save(payload, out / "odd" / "payload_3.pt")
    (out / "odd" / "payload.pkl").write_bytes(pickle.dumps(payload))
    lightning = {
        "epoch": 1,
        "global_step": 20,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": state["model"],
        "optimizer_states": [state["optimizer"]],
        "lr_schedulers": [],
        "loops": {"fit_loop": {"state_dict": {}}},
    }
    (out / "lightning").mkdir()
    torch.save(lightning, out / "lightning" / "epoch=1-step=20.ckpt")
    torch.save(lightning, out / "lightning" / "last.ckpt")


def safetensors_files(out: Path) -> None:
    tensors = {f"w{i}": torch.randn(32, 32) for i in range(6)}
    for step in (1, 2):
        single = out / "safetensors" / f"step_{step}"
        single.mkdir(parents=True)
        save_file(tensors, single / "model.safetensors", metadata={"format": "pt"})
        (single / "config.json").write_text('{"hidden": 64}')
    sharded = out / "sharded" / "step_3"
    sharded.mkdir(parents=True)
    weights = {}
    for shard in (1, 2, 3):
        name = f"model-{shard:05d}-of-00003.safetensors"
        chosen = {key: tensors[key] for key in list(tensors)[(shard - 1) * 2 : shard * 2]}
        save_file(chosen, sharded / name, metadata={"format": "pt"})
        weights |= dict.fromkeys(chosen, name)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weights}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def dcp_rank(out: Path, rank: int, world: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group(
        "gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=world
    )
    mesh = init_device_mesh("cpu", (world,))
    for name, steps in (("dcp", (1, 2)), ("dcp-reused", (1,)), ("dcp-reused-next", (2,))):
        for step in steps:
            whole = torch.full((8, 64), float(step))
            state = {
                "model": {"w": distribute_tensor(whole, mesh, [Shard(0)]), "b": torch.zeros(3)},
                "optim": {"m": distribute_tensor(whole * 2, mesh, [Shard(0)])},
                "step": step,
            }
            where = out / name / (f"step-{step}" if name == "dcp" else "state")
            dcp.save(state, checkpoint_id=str(where))
    writer = dcp.HuggingFaceStorageWriter(
        path=str(out / "dcp-hf" / "step-3"), save_distributed=True, enable_consolidation=True
    )
    dcp.save({"w": distribute_tensor(whole, mesh, [Shard(0)])}, storage_writer=writer)
    dist.destroy_process_group()


class Progress:
    """An object that is registered with Accelerate and knows the step."""

    step = 0

    def state_dict(self) -> dict:
        return {"step": self.step}

    def load_state_dict(self, state: dict) -> None:
        self.step = state["step"]


def accelerate_dirs(out: Path) -> None:
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    project = ProjectConfiguration(str(out), automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=project)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    model, optimizer, _ = accelerator.prepare(model, optimizer, scheduler)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    for step in (30, 40):
        model(torch.ones(2, 16)).sum().backward()
        optimizer.step()
        progress.step = step
        accelerator.save_state()
    project.automatic_checkpoint_naming = False
    accelerator.save_state(str(out / "named" / "step_40"))


def hugging_face(out: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=64,
        max_position_embeddings=32,
    )
    tokens = torch.randint(0, 64, (16,))
    arguments = TrainingArguments(
        output_dir=str(out),
        per_device_train_batch_size=2,
        max_steps=4,
        save_steps=2,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    data = [{"input_ids": tokens, "labels": tokens}] * 32
    Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=data).train()


def spawn(*arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen:
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, env={**os.environ, **(env or {})})


def wait_all(*processes: subprocess.Popen) -> None:
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit(f"a helper process failed: exit codes {codes}")


def main(out: Path) -> None:
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    torch_files(out)
    safetensors_files(out)
    wait_all(*(spawn("--dcp", str(out), str(rank), "2") for rank in range(2)))
    wait_all(spawn("--hf", str(out / "hf")), spawn("--accelerate", str(out / "accelerate")))
    port = str(20000 + os.getpid() % 20000)
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = ({**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2))
    wait_all(*(spawn("--hf", str(out / "hf-ddp"), env=rank) for rank in ranks))
    versions = {"torch": torch.__version__, "numpy": numpy.__version__}
    (out / "versions.json").write_text(json.dumps(versions))


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if sys.argv[1] == "--dcp":
        dcp_rank(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1] == "--accelerate":
        accelerate_dirs(Path(sys.argv[2]))
    elif sys.argv[1] == "--hf":
        hugging_face(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
