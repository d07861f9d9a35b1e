"""Saves of Lightning, Composer, fastai, torchtune, TensorFlow, Keras and Orbax, written by hand.

Names, containers and keys are mirrored from the libraries' source; no test compares them with the
real ones.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from awscrt import checksums

from kit.handmade import dcp_directory, json_file, safetensors_file, torch_file
from kit.handmade_bundle import bundle, state_text
from kit.handmade_hdf5 import hdf5_bytes

HEX = "477954d5111a31a9dd89da13c784667e"


def lightning(
    root: Path, *, step: int, name: str | None = None, full: bool = True, loader: bool = False
) -> Path:
    value: dict[str, Any] = {
        "epoch": step // 10,
        "global_step": step,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": {},
        "loops": {"fit_loop": {"state_dict": {"combined_loader": [{}] if loader else []}}},
        "callbacks": {},
    }
    if full:
        value |= {"optimizer_states": [{"state": {}}], "lr_schedulers": [{"last_epoch": 1}]}
    place = root / (name or f"epoch={step // 10}-step={step}.ckpt")
    torch_file(place, value)
    return place


def lightning_sharded(root: Path, *, step: int, ranks: int = 2) -> Path:
    place = root / f"epoch={step // 10}-step={step}.ckpt"
    dcp_directory(place, {"state_dict.w": None, "optimizer_0.w.exp_avg": None}, ranks=ranks)
    meta = {"epoch": step // 10, "global_step": step, "pytorch-lightning_version": "2.6.6"}
    torch_file(place / "meta.pt", {**meta, "lr_schedulers": [], "loops": {}})
    return place


def composer(
    root: Path,
    *,
    batch: int,
    rank: int = 0,
    link: bool = True,
    epoch: int = 0,
    sharded: Mapping[str, Any] | None = None,
    world_size: int = 1,
) -> Path:
    """`sharded`: the model's part of this rank, as releases for torch 1 wrote it."""
    stamp = {"Timestamp": {"epoch": epoch, "batch": batch, "sample": batch * 8, "token": 0}}
    state = {
        "model": dict(sharded or {}),
        "optimizers": {"AdamW": {}},
        "schedulers": {"LambdaLR": {}},
        "timestamp": stamp,
        "dataset_state": {"train": None, "eval": {}},
        "metadata": {
            "composer_env_info": {"composer_version": "0.32.1"},
            "torch_version": "2.7.0",
        },
    }
    place = root / f"ep{epoch}-ba{batch}-rank{rank}.pt"
    torch_file(place, {"state": state, "rng": [{"python": [3]}] * world_size})
    if link:
        latest = root / f"latest-rank{rank}.pt"
        latest.unlink(missing_ok=True)
        latest.symlink_to(place.name)
    return place


def fastai(root: Path, *, epoch: int, fname: str = "run") -> Path:
    place = root / "models" / f"{fname}_{epoch}.pth"
    torch_file(place, {"model": {"weight": 1}, "opt": {"state": [], "hypers": [{"lr": 0.1}]}})
    return place


def torchtune(
    root: Path, *, epoch: int, state: bool = True, inside: bool = False, states: int | None = None
) -> Path:
    """`states`: what the recipe's state says that it has run, where it is of another epoch."""
    place = root / f"epoch_{epoch}"
    safetensors_file(place / "model-00001-of-00001.safetensors", "w")
    weights = {"w": "model-00001-of-00001.safetensors"}
    index = {"metadata": {"total_size": 256}, "weight_map": weights}
    json_file(place / "model.safetensors.index.json", index)
    json_file(place / "config.json", {"hidden": 8})
    run = epoch + 1 if states is None else states
    if state:
        home = place if inside else root / "recipe_state"
        torch_file(home / "recipe_state.pt", {"optimizer": {}, "epochs_run": run, "seed": 1})
    return place


def tensorflow(root: Path, *, number: int, step: int, shards: int = 1) -> Path:
    tail = "/.ATTRIBUTES/VARIABLE_VALUE"
    tensors: dict[str, bytes | int | str] = {
        f"model/layer/kernel{tail}": os.urandom(400),
        f"optimizer/_variables/1{tail}": os.urandom(400),
        f"optimizer/_iterations{tail}": step,
        f"save_counter{tail}": number,
        f"step{tail}": step,
        "_CHECKPOINTABLE_OBJECT_GRAPH": "graph" * 20,
    }
    bundle(root / f"ckpt-{number}", tensors, shards=shards)
    names = sorted((p.stem for p in root.glob("ckpt-*.index")), key=lambda n: int(n[5:]))
    (root / "checkpoint").write_text(state_text(*names))
    return root / f"ckpt-{number}"


def keras_weights(path: Path, *, step: int, optimizer: bool = True) -> Path:
    arrays: dict[str, bytes | int] = {
        "layers/dense/vars/0": os.urandom(800),
        "layers/dense/vars/1": os.urandom(40),
        "vars/0": os.urandom(4),
    }
    if optimizer:
        arrays |= {"optimizer/vars/0": step, "optimizer/vars/1": os.urandom(4)}
        arrays |= {"optimizer/vars/2": os.urandom(800)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(hdf5_bytes(arrays))
    return path


def keras_archive(path: Path, *, step: int) -> Path:
    inner = keras_weights(path.with_suffix(".inner"), step=step)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
        archive.writestr("config.json", json.dumps({"module": "keras"}))
        archive.write(inner, "model.weights.h5")
    inner.unlink()
    return path


def keras_backup(root: Path, *, epoch: int, step: int, double: bool = False) -> Path:
    keras_weights(root / "latest.weights.h5", step=step)
    json_file(root / "training_metadata.json", {"epoch": epoch, "batch": 0})
    if double:
        keras_weights(root / "latest.weights.h5.bkp", step=step - 2)
        json_file(root / "training_metadata.json.bkp", {"epoch": epoch - 1, "batch": 0})
    return root


def ocdbt_file(path: Path, *, manifest: bool = True) -> None:
    body = b"\0\1" + os.urandom(80)
    magic = bytes.fromhex("0cdb3a2a" if manifest else "0cdb20de")
    head = magic + struct.pack("<Q", 12 + len(body) + 4) + body
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + struct.pack("<I", checksums.crc32c(head)))


def orbax(root: Path, *, step: int, processes: int = 1, optimizer: bool = True) -> Path:
    place = root / str(step)
    item = place / "state"
    tree = ["('params', 'w')", *(["('opt_state', 'mu')"] if optimizer else [])]
    leaves: dict[str, Any] = {key: {} for key in tree}
    json_file(item / "_METADATA", {"tree_metadata": leaves, "use_ocdbt": True})
    json_file(item / "_sharding", {})
    for process in range(processes):
        ocdbt_file(item / f"ocdbt.process_{process}" / "manifest.ocdbt")
        ocdbt_file(item / f"ocdbt.process_{process}" / "d" / HEX, manifest=False)
        json_file(item / "array_metadatas" / f"process_{process}", {"array_metadatas": []})
    ocdbt_file(item / "manifest.ocdbt")
    (item / "d").mkdir()
    (item / "d" / HEX).write_bytes(os.urandom(500))
    (item / "commit_success.txt").write_text("Checkpoint commit was successful")
    json_file(place / "extra" / "metadata", {"epoch": step // 10, "loss": 0.5})
    (place / "commit_success.txt").write_text("Checkpoint commit was successful")
    handler = "orbax.checkpoint._src.handlers"
    items = {"state": f"{handler}.StandardCheckpointHandler", "extra": f"{handler}.JsonHandler"}
    marker = {"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": 2, "metrics": {"loss": 0.25}}
    json_file(place / "_CHECKPOINT_METADATA", {**marker, "item_handlers": items})
    return place
