"""Laws of retention, over any history: what must never go, and that what goes, goes once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.histories import a_fence, a_history, a_save, without
from rtj_sidecar.runs.history import History
from rtj_sidecar.runs.keeping import Best, Keep, carried_by, is_point, kept, to_archive, to_mark
from rtj_sidecar.runs.keys import SaveId
from rtj_sidecar.runs.lineage import lineage
from rtj_sidecar.runs.records import MarkKind, Parent

KEEPS = st.builds(
    Keep,
    last=st.one_of(st.none(), st.integers(0, 6)),
    every=st.one_of(st.none(), st.integers(1, 50)),
    best=st.one_of(st.none(), st.builds(Best, highest=st.booleans(), count=st.integers(1, 3))),
    thin=st.booleans(),
    archive_after=st.one_of(st.none(), st.floats(0, 100)),
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Up to three fences, each from scratch, from a save of the one before, or never started."""
    saves, fences, step = [], [], 0
    for fence in range(1, draw(st.integers(1, 3)) + 1):
        older = [save for save in saves if save.fence < fence]
        parent: Parent | None = Parent(scratch=True)
        if older and draw(st.booleans()):
            chosen = draw(st.sampled_from(older))
            parent, step = Parent(name=chosen.name, step=chosen.step), chosen.step or 0
        if older and draw(st.integers(0, 4)) == 0:
            parent = None
        fences.append(a_fence(fence, parent))
        for n in range(1, draw(st.integers(0, 12)) + 1):
            step += draw(st.integers(0, 9))
            told = draw(st.integers(0, 9)) > 0
            facts = {}
            if older and draw(st.integers(0, 5)) == 0:
                back = draw(st.sampled_from(older))
                facts = {"carried": [{"fence": back.fence, "n": back.n, "step": back.step}]}
            saves.append(
                a_save(
                    fence,
                    n,
                    step if told else None,
                    status=draw(st.sampled_from(["Verified", "Verified", "Settled"])),
                    full_state=draw(st.sampled_from([True, True, None, False])),
                    loss=draw(st.one_of(st.none(), st.floats(0, 9))),
                    at=float(step),
                    facts=facts,
                )
            )
    kinds = st.sampled_from(
        [MarkKind.PINNED, MarkKind.UNPINNED, MarkKind.INVALID, MarkKind.GOOD, MarkKind.SUSPECT]
    )
    marks = {
        SaveId(save.fence, save.n): draw(st.lists(kinds, min_size=1, max_size=3))
        for save in saves
        if draw(st.integers(0, 6)) == 0
    }
    return a_history(saves, fences=fences, marks=marks)


def valid(history: History) -> list[SaveId]:
    return [
        save
        for save in lineage(history).saves
        if save in history.manifests and history.condemned(save) is None
    ]


@given(history=histories(), keep=KEEPS, data=st.data())
@settings(max_examples=100, deadline=None)
def test_nothing_that_is_needed_goes(history: History, keep: Keep, data: st.DataObject) -> None:
    names = [manifest.name for manifest in history.manifests.values()]
    in_use = data.draw(st.lists(st.sampled_from(names), max_size=2)) if names else []
    goes = set(to_mark(history, keep=keep, in_use=in_use))
    stays = [save for save in valid(history) if save not in goes]
    points = [save for save in valid(history) if is_point(history.manifests[save])]
    if valid(history):
        assert valid(history)[0] in stays, "the newest valid one"
    if points:
        assert points[0] in stays, "the newest proved one"
        assert len([s for s in points if s in stays]) >= min(len(points), max(keep.last or 1, 1))
    else:
        assert not goes
    parents = {fence.parent.name for fence in history.fences if fence.parent}
    needed = {name for save in stays for name in carried_by(history.manifests[save])}
    for save in goes:
        manifest = history.manifests[save]
        assert manifest.name not in {*in_use, *parents, *needed}
        assert not history.pinned(save)
        assert history.condemned(save) is None
    assert not goes & set(lineage(history).branches)
    if keep.last is None:
        assert not goes


@given(history=histories(), keep=KEEPS)
@settings(max_examples=100, deadline=None)
def test_what_went_makes_nothing_else_go(history: History, keep: Keep) -> None:
    goes = to_mark(history, keep=keep, in_use=[])
    after = without(history, goes)
    assert to_mark(after, keep=keep, in_use=[]) == ()
    assert valid(after) == [save for save in valid(history) if save not in goes]


@given(history=histories(), keep=KEEPS)
@settings(max_examples=100, deadline=None)
def test_only_what_is_kept_and_not_near_goes_to_the_archive(history: History, keep: Keep) -> None:
    why = kept(history, keep=keep, in_use=[])
    moves = to_archive(history, keep=keep, in_use=[], now=1e6)
    points = [save for save in why if is_point(history.manifests[save])]
    assert not set(moves) & set(points[: max(keep.last or 1, 1)])
    for save in moves:
        assert why[save] is not None
        assert not history.pinned(save)


@given(
    gaps=st.lists(st.integers(1, 20), min_size=1, max_size=300),
    last=st.integers(1, 5),
    stride=st.integers(1, 7),
)
@settings(max_examples=60, deadline=None)
def test_however_often_it_runs_few_old_points_are_left_at_every_age(
    gaps: list[int], last: int, stride: int
) -> None:
    """Retention after every `stride`-th save: the points left thin out and no age is bare."""
    keep = Keep(last=last, thin=True)
    history = a_history([])
    saves, step = [], 0
    for n, gap in enumerate(gaps, 1):
        step += gap
        saves.append(a_save(1, n, step))
        history = a_history([*history.manifests.values(), saves[-1]])
        if n % stride == 0:
            history = without(history, to_mark(history, keep=keep, in_use=[]))
    history = without(history, to_mark(history, keep=keep, in_use=[]))
    left = sorted(manifest.step or 0 for manifest in history.manifests.values())
    first = saves[0].step or 0
    assert left[0] == first, "the oldest point stays"
    doublings = max(1, (step - first).bit_length())
    assert len(left) <= last + 2 * doublings + 2
    everything = sorted(save.step or 0 for save in saves)
    for older, newer in pairwise(left):
        if newer in left[-last:] or everything.index(newer) - everything.index(older) == 1:
            continue
        widest = max(gaps)
        assert newer - older <= (step - newer) + widest, "a gap is no wider than its age"
