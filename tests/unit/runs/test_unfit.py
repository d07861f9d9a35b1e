"""What a save's own facts say against it: no candidate, no count for retention, and no mark."""

from __future__ import annotations

from dataclasses import replace

from rtj_sidecar.runs.keeping import Keep, to_mark
from rtj_sidecar.runs.lineage import candidates
from rtj_sidecar.runs.records import SaveFacts
from rtj_sidecar.runs.unfit import against, facts_of_parts

from tests.unit.runs.test_lineage import SCRATCH, fence, history

NAN = {"unfit": {"reason": "CheckpointNotFinite", "message": "ckpt_3.pt: NaN in w, finite before"}}
LACKS = {"required": {"held": ["model"], "missing": ["optimizer"], "where": ["a.pt"], "unread": []}}


def saves(*facts: dict[str, object]):
    """A run with one save for each of these facts, oldest first."""
    bare = history([fence(1, SCRATCH)], {(1, n): n for n in range(1, len(facts) + 1)})
    made = {
        save: record.model_copy(update={"facts": facts[save.n - 1]})
        for save, record in bare.manifests.items()
    }
    return replace(bare, manifests=made)


def test_it_is_no_candidate_and_says_why() -> None:
    found = list(candidates(saves({}, NAN)).values())
    assert [c.invalid for c in found] == ["CheckpointNotFinite", None]
    assert "NaN in w" in (found[0].invalid_message or "")


def test_a_required_key_counts_as_long_as_it_is_required() -> None:
    run = saves({}, LACKS)
    assert [c.invalid for c in candidates(run).values()] == [None, None]
    asked = replace(run, required=("optimizer",))
    (newest, older) = candidates(asked).values()
    assert newest.invalid == "RequiredKeyMissing"
    assert "a.pt has no 'optimizer'" in (newest.invalid_message or "")
    assert older.invalid is None  # made before anybody asked: see the check after the restore


def test_saves_full_of_nan_push_no_healthy_one_out() -> None:
    run = saves({}, {}, NAN, NAN, NAN)
    assert [str(save) for save in to_mark(run, keep=Keep(last=2), in_use=())] == []
    run = saves({}, {}, {}, NAN)
    assert [save.n for save in to_mark(run, keep=Keep(last=2), in_use=())] == [1]


def test_one_ranks_nan_is_the_saves_and_one_ranks_optimizer_too() -> None:
    def part(**facts: object) -> SaveFacts:
        return SaveFacts(root_key="s", layout="torch", facts=facts)

    told = facts_of_parts(
        [
            part(has={"optimizer": False, "rng": True}, unit="step"),
            part(has={"optimizer": True}, unit="number", **NAN),
        ]
    )
    assert told["has"] == {"optimizer": True, "rng": True}
    assert told["unit"] == "step"
    assert against(told) == ("CheckpointNotFinite", NAN["unfit"]["message"])
    assert against(facts_of_parts([part(), part()])) is None
