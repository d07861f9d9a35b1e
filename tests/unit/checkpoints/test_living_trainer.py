"""A real trainer saves, overwrites and rotates while we look: every pin must load with torch."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from rtj_sidecar.checkpoints.layouts import layouts_for
from rtj_sidecar.checkpoints.pin_choice import InodeHistory, PinHow, how_to_pin, next_history
from rtj_sidecar.checkpoints.pins import Pin, PinError, files_dir, pin_entries, pin_save
from rtj_sidecar.checkpoints.quiescence import Observations, Writers, observe
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.scan import EMPTY, take_snapshot
from rtj_sidecar.checkpoints.types import Expectations, Status
from rtj_sidecar.checkpoints.validate import Patience, judge_all

_TRAINER = """
import os, random, sys, time, torch
out = sys.argv[1]
state = {"model": torch.zeros(1 << 20), "optimizer": {"m": torch.zeros(1 << 20)}}
for step in range(1, 31):
    state["step"] = step
    state["model"].fill_(step)
    torch.save(state, f"{out}/ckpt.pt")
    torch.save(state, f"{out}/step_{step}.pt")
    if step > 2:
        os.remove(f"{out}/step_{step - 2}.pt")
    time.sleep(random.uniform(0.05, 0.3))
"""
_LOADER = """
import sys, torch
for line in sys.stdin:
    path, step = line.split()
    state = torch.load(path)
    assert state["step"] == int(step), (path, state["step"])
    assert bool((state["model"] == int(step)).all()), path
print("all load")
"""


def test_whatever_is_pinned_while_a_trainer_runs_loads(trainer: Path, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    root.mkdir()
    reader, layouts = Reader(root), layouts_for()
    snapshot, observations, history = EMPTY, Observations(), InodeHistory()
    pins: dict[str, tuple[Pin, int | None]] = {}
    spoilt = 0
    process = subprocess.Popen([trainer, "-c", _TRAINER, root])
    deadline = time.monotonic() + 200
    running = True
    while running:
        running = process.poll() is None
        assert time.monotonic() < deadline
        snapshot = take_snapshot(reader=reader, layouts=layouts, previous=snapshot)
        now = time.monotonic()
        observations = observe(before=observations, snapshot=snapshot, now=now)
        history = next_history(before=history, snapshot=snapshot)
        for save, verdict in judge_all(
            snapshot=snapshot,
            reader=reader,
            layouts=layouts,
            observations=observations,
            patience=Patience(now=now, settle_seconds=0.03),
            writers=Writers(gone=not running),
            expect=Expectations(),
        ):
            if not verdict.candidate or save.fingerprint in pins:
                continue
            assert verdict.status is Status.VERIFIED
            how = how_to_pin(save=save, history=history)
            if save.root_key == "ckpt.pt":
                assert how["ckpt.pt"] is PinHow.COPY
            try:
                pin = pin_save(reader=reader, save=save, pin_id=f"p{len(pins)}", how=how)
            except PinError:
                spoilt += 1
                continue
            pins[save.fingerprint] = (pin, save.step)
    assert process.returncode == 0
    lines = []
    for pin, step in pins.values():
        assert pin_entries(root, pin) is not None
        for pinned in pin.files:
            lines.append(f"{files_dir(root, pin.id) / pinned.path} {step}")
    steps = {step for _, step in pins.values()}
    assert len(steps) >= 5, f"only {steps} were caught, {spoilt} pins were spoilt"
    assert 30 in steps
    loaded = subprocess.run(
        [trainer, "-c", _LOADER], input="\n".join(lines), text=True, capture_output=True
    )
    assert loaded.stdout.strip() == "all load", loaded.stderr
