"""What counts as an output: all that is no checkpoint, no secret, and not there before."""

from __future__ import annotations

from pathlib import Path

from kit.directories import GONE, Place
from rtj_sidecar.checkpoints.products import products


def test_products(tmp_path: Path) -> None:
    place = Place(tmp_path / "out")
    (place.path / "vocab.txt").write_text("before")
    (place.path / "tokens.bin").write_bytes(b"before")
    place.directory.load(is_new=True)
    (place.path / "vocab.txt").write_text("written over by the trainer")
    place.save("step_5.pt", step=5)
    place.save("step_10/model.pt", step=10)
    (place.path / "step_10" / "args.json").write_text("{}")
    (place.path / "latest").write_text("step_10")
    for name in ("model.safetensors", "config.json", "train.log", "report/curve.csv"):
        (place.path / name).parent.mkdir(exist_ok=True)
        (place.path / name).write_bytes(b"x")
    for name in (".env", "deploy.key", "credentials", "model.pt.tmp", "core.17"):
        (place.path / name).write_bytes(b"x")
    look = place.directory.look(writers=GONE)
    found = {
        entry.path for entry in products(look.snapshot, foreign=place.directory.ledger.foreign)
    }
    assert found == {
        "vocab.txt",
        "model.safetensors",
        "config.json",
        "train.log",
        "report/curve.csv",
    }
