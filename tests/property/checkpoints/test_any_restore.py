"""From any directory: a restore ends with the chosen save whole and newest, and loses no byte."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
import zipfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.checkpoint_looks import judged, snapshot_of
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.restore import apply_restore, incoming_dir, survey
from rtj_sidecar.checkpoints.restore_plan import Chosen, plan_restore
from rtj_sidecar.checkpoints.types import Status, WantedFile

NAMES = ["step_{}/model.pt", "step_{}/optim.pt", "step_{}/rng.bin", "ckpt_{}.pt", "last.pt"]

local_files = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.integers(1, 4)),
    st.sampled_from(["whole", "torn", "zeros", "link", "directory"]),
    max_size=10,
)


def content(step: int, name: str) -> bytes:
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a/data.pkl", pickle.dumps({"step": step, "optimizer": {}}, 2))
            archive.writestr("a/data/0", name.encode() * step)
        file.seek(0)
        return file.read()


def bytes_below(root: Path) -> set[str]:
    found = set()
    for directory, _, files in os.walk(root):
        for name in files:
            path = Path(directory, name)
            if not path.is_symlink() and path.stat().st_size:
                found.add(hashlib.sha256(path.read_bytes()).hexdigest())
    return found


@settings(max_examples=120, deadline=None)
@given(
    local=local_files,
    chosen_step=st.integers(1, 4),
    family=st.sampled_from(["step_{}/", "ckpt_{}.pt"]),
    attempt=st.integers(0, 3),
)
def test_any_directory_ends_with_the_chosen_save(
    local: dict[tuple[str, int], str], chosen_step: int, family: str, attempt: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for (pattern, step), state in local.items():
            place = root / pattern.format(step)
            place.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(place):
                continue
            if state == "link":
                place.symlink_to("nowhere")
            elif state == "directory":
                place.mkdir()
                (place / "inside.txt").write_text(f"{pattern} {step}")
            else:
                whole = content(step, pattern)
                damaged = {"torn": whole[:-9], "zeros": bytes(len(whole))}
                place.write_bytes(damaged.get(state, whole))
        before = bytes_below(root)
        wanted = {
            pattern.format(chosen_step): content(chosen_step, pattern)
            for pattern in NAMES
            if pattern.startswith(family)
        }
        chosen = Chosen(
            family.format(chosen_step).rstrip("/"),
            chosen_step,
            None,
            tuple(
                WantedFile(path, len(data), hashlib.sha256(data).hexdigest())
                for path, data in wanted.items()
            ),
        )

        def planned() -> object:
            reader = Reader(root)
            snapshot = snapshot_of(root, reader=reader)
            verdicts = {save.identity: verdict for save, verdict in judged(root).values()}
            known = survey(reader=reader, snapshot=snapshot, chosen=chosen, restore_id="r")
            return plan_restore(snapshot=snapshot, verdicts=verdicts, chosen=chosen, local=known)

        plan = planned()
        for file in plan.fetch:
            place = incoming_dir(root, "r") / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(wanted[file.path])
        apply_restore(root=root, plan=plan, restore_id="r", attempt=attempt)

        for path, data in wanted.items():
            assert (root / path).read_bytes() == data
        assert before <= bytes_below(root), "bytes were lost"
        found = judged(root)
        save, verdict = found[chosen.root_key]
        assert verdict.status is Status.VERIFIED, verdict.message
        assert {entry.path for entry in save.files} == set(wanted)
        assert all(other.step <= chosen_step for other, _ in found.values())
        assert all(other.status is not Status.TORN for _, other in found.values())
        again = planned()
        assert (again.fetch, again.place, again.quarantine, again.touch) == ((), (), (), ())
