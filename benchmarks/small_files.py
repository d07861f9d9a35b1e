"""CPU seconds and memory of a save of many small files, from the look to the restore.

`python benchmarks/small_files.py N…` prints one JSON line for each N (default 1000, 10000, 100000),
each measured in a process of its own. `one_save` is N files of 1 to 4 kB in one directory: looked
at, judged, pinned, shipped to a store in a directory, committed, restored on an empty disk, and
again where all is there; `many_saves` is N files in N/10 saves: looked at and judged. All must grow
linearly; `rss_mib` is the most memory the process ever had.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kit.handmade import torch_bytes
from kit.run_writer import begun, run_of
from rtj_sidecar.checkpoints.quiescence import Writers
from rtj_sidecar.checkpoints.types import Expectations, FoundSave, Verdict
from rtj_sidecar.directory import Directory
from rtj_sidecar.localsave import facts_of
from rtj_sidecar.pinning import pin_found
from rtj_sidecar.restoring import Target, restore
from rtj_sidecar.runs.commit import Committed
from rtj_sidecar.runs.fetch import Fetched
from rtj_sidecar.runs.records import ManifestRecord, SaveFacts
from rtj_sidecar.runs.run import Run
from rtj_sidecar.runs.ships import Named
from rtj_sidecar.runs.upload import LocalFile
from rtj_sidecar.stores.open import open_store

T = TypeVar("T")
Timed = Callable[[str, Callable[[], T]], T]
COUNTS = (1000, 10_000, 100_000)


def directory_at(path: Path) -> Directory:
    path.mkdir(parents=True, exist_ok=True)
    found = Directory(
        path, run_id="ns/gpt", layout="auto", include=(), expect=Expectations(world_size=1)
    )
    found.load()
    return found


def judged(directory: Directory, timed: Timed[object]) -> list[tuple[FoundSave, Verdict]]:
    def look() -> object:
        return directory.look(writers=Writers(gone=True)).judged

    found = timed("look", look)
    timed("look_unchanged", look)
    assert isinstance(found, tuple)
    return list(found)


def shipped(
    directory: Directory, save: FoundSave, verdict: Verdict, run: Run, timed: Timed[object]
) -> ManifestRecord:
    local = timed("pin", lambda: pin_found(directory, save, verdict=verdict, attempt=1, since=0.0))
    facts = facts_of(save, verdict)
    paths = [entry.path for entry in save.files]
    fence = begun(run)
    named = run.publishing.name_ship(
        fence=fence, n=1, save=facts, seen={0: paths}, world_size=1, parent=None
    )
    assert isinstance(named, Named)
    pin = local.pin  # type: ignore[attr-defined]
    sources = directory.sources(local)  # type: ignore[arg-type]
    files = [LocalFile(f.path, sources[f.path], f.stamp.size, f.source.mode) for f in pin.files]
    timed("upload", lambda: run.moving.upload_part(named.ship, files=files, save=facts))
    done = timed("commit", lambda: run.publishing.try_commit(named.ship, fence=fence))
    assert isinstance(done, Committed)
    return done.manifest


def restored(root: Path, manifest: ManifestRecord, run: Run, timed: Timed[object]) -> None:
    directory = directory_at(root)
    facts = SaveFacts(root_key=manifest.root_key, layout=manifest.layout, step=manifest.step)
    target = Target(manifest.name, facts, tuple(manifest.files), durable=True)

    def fetch(files: object, incoming: Path) -> int:
        done = run.moving.fetch(manifest.name, incoming, files=files)  # type: ignore[arg-type]
        assert isinstance(done, Fetched)
        return done.bytes_from_store

    for part in ("restore", "restore_valid"):
        done = timed(part, lambda: restore(directory, target, attempt=1, owner=None, fetch=fetch))
        assert bool(done.bytes_fetched) == (part == "restore")  # type: ignore[attr-defined]


def write(root: Path, *, files: int, each: int) -> None:
    """`files` torch files in saves of `each`."""
    for at in range(files):
        path = root / f"step_{at // each + 1}" / f"part_{at % each}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(torch_bytes({"a": at}, payload=500 + at * 37 % 2500))


def measured(count: int) -> dict[str, object]:
    """CPU seconds of each part, all threads."""
    told: dict[str, object] = {"files": count}
    for name, each in (("one_save", count), ("many_saves", 10)):
        spent: dict[str, float] = {}

        def timed(part: str, do: Callable[[], T]) -> T:
            begin = time.process_time()
            found = do()
            spent[part] = round(time.process_time() - begin, 3)  # noqa: B023
            return found

        with tempfile.TemporaryDirectory() as place:
            root = Path(place)
            write(root / "from", files=count, each=each)
            directory = directory_at(root / "from")
            found = judged(directory, timed)
            if name == "one_save":
                run = run_of(open_store(f"file://{place}/store"))
                manifest = shipped(directory, *found[-1], run, timed)
                restored(root / "to", manifest, run, timed)
        told[name] = spent
    told["rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return told


def alone(count: int) -> dict[str, object]:
    """`measured` in a process of its own, whose memory is this save's."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, (count,))


def main(counts: list[int]) -> None:
    for count in counts:
        print(json.dumps(alone(count)), flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or list(COUNTS))
