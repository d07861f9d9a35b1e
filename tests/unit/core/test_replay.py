"""Steps run twice, against their first pass: right resumes match, each broken part is named."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from rtj_api.rules.noise import noise_of, raw_noise_of
from rtj_api.rules.replay import FirstPass, Lost, Record, ReplayState, compared, ignored

SAVED, REACHED = 12_000, 12_040


def a_record(step: int, *, noise: float = 0.0, at: int | None = None) -> Record:
    """Of a job with a warm-up of 1,000 steps and a slow decay, eight samples a step. `at`: how far
    its schedule and its loader are."""
    place = step if at is None else at
    lr = 1e-3 * min(place / 1000, 1 - place / 100_000)
    wobble = random.Random(step).gauss(0, 0.02)
    return Record(
        step=step,
        loss=2.0 + wobble + noise,
        grad_norm=1.0 + 5 * wobble,
        lr=lr,
        samples=8.0 * place,
        batch=f"b{place}",
    )


def the_first(*, beyond: bool = True, **without: None) -> FirstPass:
    last = REACHED if beyond else SAVED
    steps = range(SAVED - 64, last + 1)
    records = {step: replace(a_record(step), **without) for step in steps}
    return FirstPass(records=records, begin=[a_record(step) for step in range(1, 9)])


def again(count: int = 20) -> list[Record]:
    return [a_record(step) for step in range(SAVED + 1, SAVED + 1 + count)]


def test_a_right_resume_matches() -> None:
    found = compared(the_first(), again(), resumed=SAVED)
    assert found is not None
    assert (found.state, found.compared, found.lost) == (ReplayState.MATCH, 20, None)


def test_other_noise_of_the_same_size_matches() -> None:
    """Dropout with another seed: the loss differs, by no more than from step to step."""
    source = random.Random(3)
    second = [replace(r, loss=(r.loss or 0) + source.gauss(0, 0.02)) for r in again()]
    found = compared(the_first(), second, resumed=SAVED)
    assert found is not None
    assert found.state is ReplayState.MATCH


def test_nothing_is_said_of_two_steps() -> None:
    assert compared(the_first(), again(2), resumed=SAVED) is None
    assert compared(the_first(), [], resumed=SAVED) is None


def test_a_lost_scheduler_is_named() -> None:
    second = [replace(r, lr=a_record(0, at=r.step - SAVED).lr) for r in again()]
    found = compared(the_first(), second, resumed=SAVED)
    assert found is not None
    assert (found.state, found.lost, found.step) == (
        ReplayState.DRIFT,
        Lost.SCHEDULER,
        SAVED + 1,
    )
    assert "learning-rate scheduler" in found.message


def test_a_lost_scheduler_is_named_without_a_step_run_twice() -> None:
    """A lost pod: nothing is known beyond the save, but where the learning rate stood at it is."""
    second = [replace(r, lr=a_record(0, at=r.step - SAVED).lr) for r in again()]
    found = compared(the_first(beyond=False), second, resumed=SAVED)
    assert found is not None
    assert (found.state, found.lost) == (ReplayState.DRIFT, Lost.SCHEDULER)
    right = compared(the_first(beyond=False), again(), resumed=SAVED)
    assert right is not None
    assert right.state is ReplayState.NO_OVERLAP


def test_another_learning_rate_is_a_drift_without_a_name() -> None:
    second = [replace(r, lr=(r.lr or 0) * 2) for r in again()]
    found = compared(the_first(), second, resumed=SAVED)
    assert found is not None
    assert (found.state, found.lost) == (ReplayState.DRIFT, None)


@pytest.mark.parametrize("what", ["samples", "batch"])
def test_a_repeated_data_window_is_a_lost_loader(what: str) -> None:
    def begun(record: Record) -> Record:
        return replace(record, **{what: getattr(a_record(0, at=record.step - SAVED), what)})

    found = compared(the_first(), [begun(r) for r in again()], resumed=SAVED)
    assert found is not None
    assert (found.state, found.lost) == (ReplayState.DRIFT, Lost.LOADER)
    assert "data loader" in found.message


def test_other_weights_are_another_training() -> None:
    second = [replace(r, loss=(r.loss or 0) + 8) for r in again()]
    found = compared(the_first(), second, resumed=SAVED)
    assert found is not None
    assert found.state is ReplayState.DIVERGED
    assert found.message.startswith(f"step {SAVED + 1}: loss was 2")


def test_a_mean_since_the_start_is_no_other_training() -> None:
    """Of a loss that falls; a trainer that is started again begins its mean anew."""

    def falling(step: int) -> float:
        return 4 - step / 4000 + random.Random(step).gauss(0, 0.02)

    def mean_since(begin: int, step: int) -> Record:
        told = [falling(s) for s in range(begin, step + 1, 50 if begin == 1 else 1)]
        return Record(step=step, loss=sum(told) / len(told))

    first = FirstPass(
        records={step: mean_since(1, step) for step in range(SAVED - 20, REACHED + 1)}
    )
    second = [mean_since(SAVED + 1, step) for step in range(SAVED + 1, REACHED)]
    found = compared(first, second, resumed=SAVED)
    assert found is not None
    assert found.state is ReplayState.DRIFT


def test_a_loss_that_is_no_number_any_more_is_another_training() -> None:
    second = [replace(r, loss=math.nan) for r in again()]
    found = compared(the_first(), second, resumed=SAVED)
    assert found is not None
    assert found.state is ReplayState.DIVERGED


def test_one_outlier_is_no_drift() -> None:
    second = again()
    second[4] = replace(second[4], loss=9.0)
    found = compared(the_first(), second, resumed=SAVED)
    assert found is not None
    assert found.state is ReplayState.MATCH


def test_what_one_pass_did_not_tell_is_not_missed() -> None:
    found = compared(the_first(lr=None, samples=None, batch=None), again(), resumed=SAVED)
    assert found is not None
    assert found.state is ReplayState.MATCH


def test_ranks_that_write_one_file_each_have_their_own_data() -> None:
    """torchrun in one pod: each of its ranks inherits the progress file's name."""

    def of_rank(record: Record, rank: int) -> Record:
        return replace(record, batch=f"{record.batch} {rank}", samples=4.0 * record.step + rank)

    records = {s: of_rank(r, s % 4) for s, r in the_first().records.items()}
    first = replace(the_first(), records=records)
    second = [of_rank(r, rank) for r in again() for rank in range(4)]
    found = compared(first, second, resumed=SAVED)
    assert found is not None
    assert found.state is ReplayState.MATCH, found.message
    assert compared(first, second[:4], resumed=SAVED) is None, "four words, and one step"


def test_beyond_all_that_was_told_there_is_no_overlap() -> None:
    late = [a_record(step) for step in range(REACHED + 1, REACHED + 4)]
    found = compared(the_first(), late, resumed=SAVED)
    assert found is not None
    assert found.state is ReplayState.NO_OVERLAP


def begun_anew(count: int = 5) -> list[Record]:
    return [a_record(step) for step in range(1, 1 + count)]


def test_a_trainer_that_begins_at_step_1_ignored_its_checkpoint() -> None:
    found = ignored(the_first(), begun_anew(), resumed=SAVED, is_exact=True)
    assert found is not None
    assert found.state is ReplayState.IGNORED
    assert "given step 12000" in found.message
    assert "begins at step 1" in found.message


def test_log_lines_alone_never_convict() -> None:
    assert ignored(the_first(), begun_anew(), resumed=SAVED, is_exact=False) is None


def test_a_counter_that_begins_anew_in_each_epoch_proves_nothing() -> None:
    """Its first pass told small numbers at the save, too."""
    records = {step: a_record(step) for step in range(100, 400)}
    assert ignored(FirstPass(records=records), begun_anew(), resumed=SAVED, is_exact=True) is None


def an_epoch_later(count: int = 5) -> list[Record]:
    """After a save at the end of the first epoch: its steps are counted from 1 again."""
    return [replace(a_record(SAVED + step), step=step) for step in range(1, 1 + count)]


@pytest.mark.parametrize("what", ["loss", "samples"])
def test_a_counter_of_the_second_epoch_is_not_taken_for_an_ignored_checkpoint(what: str) -> None:
    def only(record: Record) -> Record:
        return Record(step=record.step, **{what: getattr(record, what)})

    def begun(record: Record) -> Record:
        return only(replace(record, loss=(record.loss or 0) + 5))

    first = FirstPass(
        records={step: only(r) for step, r in the_first().records.items()},
        begin=[begun(r) for r in the_first().begin],
    )
    second = [only(r) for r in an_epoch_later()]
    assert ignored(first, second, resumed=SAVED, is_exact=True) is None
    anew = [begun(r) for r in begun_anew()]
    assert ignored(first, anew, resumed=SAVED, is_exact=True) is not None
    # A loss that did not fall in the first epoch tells nothing.
    flat = replace(first, begin=[only(r) for r in the_first().begin])
    if what == "loss":
        assert ignored(flat, second, resumed=SAVED, is_exact=True) is not None


def test_a_right_resume_is_not_taken_for_an_ignored_one() -> None:
    assert ignored(the_first(), again(), resumed=SAVED, is_exact=True) is None
    # A line of before the load, and a counter from 0 that names the step it is about to end.
    strays = [a_record(1), a_record(SAVED - 1), *again()]
    assert ignored(the_first(), strays, resumed=SAVED, is_exact=True) is None
    assert ignored(the_first(), begun_anew(2), resumed=SAVED, is_exact=True) is None


def smoothed(losses: list[float], *, factor: float) -> list[float]:
    """As a logger shows them: a moving mean that begins with the first."""
    shown: list[float] = []
    for loss in losses:
        before = shown[-1] if shown else loss
        shown.append(factor * before + (1 - factor) * loss)
    return shown


@pytest.mark.parametrize("factor", [0.9, 0.95, 0.98, 0.99])
def test_a_moving_mean_that_begins_anew_convicts_nobody(factor: float) -> None:
    """The raw losses are the same twice; only the logger has forgotten what came before."""
    for seed in range(60):
        source = random.Random(seed)
        raw = [2.0 - 0.0002 * at + source.gauss(0, 0.3) for at in range(700)]
        shown = smoothed(raw, factor=factor)
        records = {at: Record(step=at, loss=shown[at]) for at in range(600, 700)}
        again = smoothed(raw[660:], factor=factor)
        second = [Record(step=660 + at, loss=loss) for at, loss in enumerate(again)]
        found = compared(FirstPass(records=records), second, resumed=659)
        assert found is not None
        assert found.state is not ReplayState.DIVERGED, (seed, found.message)


@pytest.mark.parametrize("factor", [0.0, 0.9, 0.98])
def test_another_training_is_convicted_whatever_is_shown(factor: float) -> None:
    """From another beginning: its loss is that of an untrained model."""
    for seed in range(20):
        source = random.Random(seed)
        raw = [2.0 - 0.0002 * at + source.gauss(0, 0.05) for at in range(700)]
        shown = smoothed(raw, factor=factor)
        records = {at: Record(step=at, loss=shown[at]) for at in range(600, 700)}
        lost = smoothed([9.0 + source.gauss(0, 0.05) for _ in range(40)], factor=factor)
        second = [Record(step=660 + at, loss=loss) for at, loss in enumerate(lost)]
        found = compared(FirstPass(records=records), second, resumed=659)
        assert found is not None
        assert found.state is ReplayState.DIVERGED, seed


def test_a_loss_that_falls_ever_less_is_no_mean() -> None:
    falling = [2.0 * math.exp(-at / 100) for at in range(100)]
    assert raw_noise_of(falling) == pytest.approx(noise_of(falling), rel=0.5)
    assert raw_noise_of([1.0] * 50) == 0.0
