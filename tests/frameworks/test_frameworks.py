"""Every framework, for real: its own saves, killed saves, and its own resume after our restore.

`make frameworks` runs it (long, some gigabytes of libraries, not in CI). A family whose libraries
cannot be installed is a skip that says why, and a failure with RTJ_FRAMEWORKS=strict. The seed of
the random kills is printed; RTJ_FRAMEWORKS_SEED repeats one, RTJ_FRAMEWORKS_KILLS says how many.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from pathlib import Path

import pytest
from kit import frameworks
from kit.frameworks import Case, Told
from kit.interrupted import interrupted
from kit.put_back import look, put_back, ship
from kit.tools import ToolMissing
from rtj_sidecar.checkpoints.types import FoundSave, Status

WANTED = os.environ.get("RTJ_FRAMEWORKS", "")
SEED = int(os.environ.get("RTJ_FRAMEWORKS_SEED") or random.SystemRandom().randrange(1 << 30))
KILLS = int(os.environ.get("RTJ_FRAMEWORKS_KILLS") or 3)

pytestmark = [
    pytest.mark.skipif(not WANTED, reason="the matrix of frameworks runs by `make frameworks`"),
    pytest.mark.timeout(1800),
]


@pytest.fixture(params=frameworks.cases(), ids=lambda case: f"{case.family}-{case.name}")
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    try:
        frameworks.python_of(found.family)
    except ToolMissing as missing:
        if WANTED == "strict":
            pytest.fail(f"{found.family}: {missing}")
        pytest.skip(f"NOT TESTED, {found.family}: {missing}")
    return found


def candidates(root: Path, case: Case) -> list[FoundSave]:
    """The saves that may be resumed from, oldest first; all of the layout that the case names.
    Without weights that another file of a fixed name no longer goes with: by consent alone."""
    snapshot, verdicts, _ = look(root, world_size=case.options.get("ranks"))
    found = [save for save in snapshot.saves if verdicts[save.identity].candidate]
    for save in found:
        assert save.layout == case.layout, (save.root_key, save.layout)
    return [save for save in found if is_full(save, case) or not case.in_place]


def is_full(save: FoundSave, case: Case) -> bool:
    return save.full_state is case.options.get("full_state", True)


def step_of(save: FoundSave, case: Case) -> int:
    """What the script counts by: the step, else the epoch."""
    step = save.epoch if case.options.get("counts") == "epoch" else save.step
    assert step is not None, save
    return step


def test_real_saves_are_verified_and_each_comes_back(case: Case, tmp_path: Path) -> None:
    root = tmp_path / "run"
    told = frameworks.save(case, root)
    snapshot, verdicts, _ = look(root, world_size=case.options.get("ranks"))
    newest = max(told.saved)
    for save in snapshot.saves:
        verdict = verdicts[save.identity]
        settled = case.options.get("settles") and verdict.status is Status.SETTLED
        assert settled or verdict.status is Status.VERIFIED, verdict.message
        assert save.layout == case.layout, (save.root_key, save.layout)
        assert is_full(save, case) or case.in_place, save
    kept = {step_of(save, case): save for save in snapshot.saves if is_full(save, case)}
    assert set(kept) <= set(told.digests)
    assert max(kept) == newest
    single = case.in_place or case.options.get("keeps_one")
    assert single or len(kept) > 1, "there is nothing older to go back to"
    expect_every_cut_to_be_seen(root, kept[newest], case, tmp_path / "cut")
    for step, save in sorted(kept.items()):
        fresh = tmp_path / f"fresh-{step}"
        put_back(ship(root, save, snapshot, into=tmp_path / f"store-{step}"), fresh)
        assert frameworks.resume(case, fresh) == (step, told.digests[step])
    # The same directory, going back: what is newer must be gone from the framework's sight.
    oldest = min(kept)
    put_back(ship(root, kept[oldest], snapshot, into=tmp_path / "store-back"), root)
    assert frameworks.resume(case, root) == (oldest, told.digests[oldest])


@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_save_is_never_chosen(case: Case, number: int, tmp_path: Path) -> None:
    print(f"RTJ_FRAMEWORKS_SEED={SEED}")
    luck = random.Random(f"{SEED} {case.family} {case.name} {number}")
    root = tmp_path / "run"
    kept: list[Path] = []

    def keep(step: int) -> None:
        """As a pin does: copied while the trainer goes on, and only what is whole is kept."""
        place = tmp_path / f"kept-{step}"
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(root, place, symlinks=True)
            found = candidates(place, case)
            if found and step_of(found[-1], case) == step:
                kept.append(place)

    told = frameworks.train_and_kill(
        case, root, luck=luck, on_saved=keep if case.in_place else None
    )
    found = candidates(root, case)
    expect_truth(found, told, case)
    source = root
    if case.in_place and not found:
        # The only copy is torn: the one before comes from where it was kept.
        if not kept:
            return
        source = kept[-1]
        found = candidates(source, case)
    chosen = found[-1]
    step = step_of(chosen, case)
    snapshot, _, _ = look(source)
    shipped = ship(source, chosen, snapshot, into=tmp_path / "store")
    for place in (tmp_path / "fresh", root):
        put_back(shipped, place)
        assert frameworks.resume(case, place) == (step, told.digests[step])


def expect_every_cut_to_be_seen(root: Path, newest: FoundSave, case: Case, place: Path) -> None:
    """Cut off at each of its files, in the order of their times, it is no candidate any more."""
    if case.in_place or case.options.get("settles"):
        return  # files of a fixed name, or a format that cannot tell
    flags = case.options.get("flags", ())
    for state in interrupted(root, newest, into=place):
        if any(state.endswith(f"{flag} half written") for flag in flags):
            continue
        steps = [step_of(save, case) for save in candidates(place, case)]
        assert step_of(newest, case) not in steps, state


def expect_truth(found: list[FoundSave], told: Told, case: Case) -> None:
    """Only saves that were begun; and none that the framework called done is overlooked."""
    steps = [step_of(save, case) for save in found]
    assert steps == sorted(steps)
    assert set(steps) <= set(told.digests)
    if not case.in_place:
        assert steps, f"saved {told.saved}, and none is whole"
        assert steps[-1] >= max(told.saved)
