"""A save that was named later goes to the store first, also where the older is on its way."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from kit.fleet import Fleet
from rtj_sidecar.uploading import Current, is_put_aside

KIB = 1 << 10


@pytest.mark.parametrize(
    ("left", "is_whole", "newer_is_whole", "expected"),
    [
        (1000, True, True, True),
        (11, True, True, True),
        (10, True, True, False),
        (1000, True, False, False),
        (1000, False, False, True),
    ],
    ids=["begun", "a little more", "nearly done", "weights alone", "only weights alone"],
)
def test_which_upload_is_put_aside(
    left: int, is_whole: bool, newer_is_whole: bool, expected: bool
) -> None:
    current = Current("f1-n1-s1", threading.Event(), left, is_whole)
    assert is_put_aside(current, newer_bytes=100, newer_is_whole=newer_is_whole) is expected


async def test_the_last_save_of_a_trainer_goes_before_one_that_is_on_its_way(
    tmp_path: Path,
) -> None:
    """A pod that ends may have seconds left: what its trainer saved at the end counts most."""
    fleet = Fleet(tmp_path, world_size=2, store=f"file://{tmp_path}/store", mirror="never")
    async with fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        asked: list[list[str]] = [[], []]
        for rank, pod in enumerate(fleet.pods):
            pod.store.rate = KIB  # minutes for what comes next

            def gate(verb: str, key: str, rank: int = rank) -> None:
                if verb == "upload":
                    asked[rank].append(key.split("/checkpoints/")[1].split("-s")[0])
                elif verb == "uploaded" and "/f1-n3-" in key:
                    fleet.pods[rank].store.rate = None

            pod.store.gate = gate
        fleet.save(20, size=500 * KIB)
        await fleet.until(lambda: asked == [["f1-n2"], ["f1-n2"]], why="both send step 20")
        fleet.save(30)
        for pod in fleet.pods:
            pod.exit_code = 0
        await fleet.until_durable(30)
        await fleet.until(lambda: fleet.durable_steps() == [10, 20, 30], why="step 20, too")
    assert asked == [["f1-n2", "f1-n3", "f1-n2"]] * 2


async def test_a_save_whose_files_cannot_be_read_does_not_hold_up_the_one_before_it(
    tmp_path: Path,
) -> None:
    """A bad block under the newest save would else keep the older one from the store for ever."""
    async with Fleet(tmp_path, world_size=1, store=f"file://{tmp_path}/store") as fleet:
        await fleet.begin()
        fleet.save(10)
        await fleet.until_durable(10)
        pod, asked = fleet.pods[0], list[str]()

        def gate(verb: str, key: str) -> None:
            if verb == "upload":
                asked.append(key.split("/checkpoints/")[1].split("-s")[0])
                if "/f1-n3-" in key:
                    pod.store.rate = None
                    raise OSError(errno.EIO, "Input/output error")

        pod.store.rate, pod.store.gate = KIB, gate
        fleet.save(20, size=500 * KIB)
        await fleet.until(lambda: asked == ["f1-n2"], why="step 20 on its way")
        fleet.save(30)
        pod.exit_code = 0
        await fleet.until(lambda: 20 in fleet.durable_steps(), why="step 20 in the store")
        assert asked[:3] == ["f1-n2", "f1-n3", "f1-n2"]
        assert fleet.durable_steps() == [10, 20]
