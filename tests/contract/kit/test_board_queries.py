"""Every query of every dashboard, asked of a real Prometheus that knows a fleet's last minutes.

The fleet's stories are simulated, its series are made by the collectors that the operator and the
sidecar have: see `kit.board_replay`. The same is asked in `tests/e2e/test_metrics.py` of a
Prometheus that scraped the real ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from kit import board_stories, boards
from kit.boards import BOARDS, Choice
from kit.prometheus import Prometheus

pytestmark = pytest.mark.contract

JOBS = {"gpt", "bert", "vit", "t5", "whisper", "llama"}


@pytest.fixture(scope="module")
def begin() -> float:
    return float(int(time.time()) - board_stories.UNTIL - 300)


@pytest.fixture(scope="module")
def prometheus(begin: float) -> Iterator[Prometheus]:
    fleet = board_stories.fleet(begin=begin)
    with Prometheus(scrapes=[], history=fleet.scraped()) as made:
        yield made


@pytest.fixture
def choice(begin: float) -> Choice:
    key = board_stories.MENDED
    end = begin + board_stories.UNTIL
    return Choice(start=begin, end=end, step=10, namespace=key.namespace, name=".+")


def of_one(choice: Choice) -> Choice:
    return Choice(
        start=choice.start,
        end=choice.end,
        step=choice.step,
        namespace=choice.namespace,
        name=board_stories.MENDED.name,
    )


@pytest.mark.parametrize("name", BOARDS)
def test_no_query_is_empty(name: str, prometheus: Prometheus, choice: Choice) -> None:
    asked = of_one(choice) if name == "job" else choice
    assert not boards.empty(prometheus, BOARDS[name], asked)


def test_the_check_can_fail(prometheus: Prometheus, choice: Choice) -> None:
    nobody = Choice(start=choice.start, end=choice.end, namespace="ml", name="nobody")
    found = boards.empty(prometheus, BOARDS["job"], nobody)
    assert any(line.startswith("Progress preserved: ") for line in found)


def test_the_restarts_are_marked_when_they_were(prometheus: Prometheus, choice: Choice) -> None:
    marks = {mark["name"]: mark for mark in BOARDS["fleet"]["annotations"]["list"]}
    restarts = prometheus.query_range(
        choice.put_into(marks["Restarts"]["expr"]), start=choice.start, end=choice.end, step=60
    )
    at = {row["metric"]["name"]: {float(value) for _, value in row["values"]} for row in restarts}
    assert set(at) == {"gpt", "t5"}
    assert len(at["gpt"]) == 3
    for moments in at.values():
        assert all(choice.start < moment / 1000 < choice.end for moment in moments)
    fallbacks = prometheus.query_range(
        choice.put_into(marks["Fallbacks"]["expr"]), start=choice.start, end=choice.end, step=60
    )
    assert fallbacks


def test_the_measures_are_those_of_the_statuses(prometheus: Prometheus, choice: Choice) -> None:
    def shown(title: str, asked: Choice) -> float:
        [panel] = [each for each in BOARDS["job"]["panels"] if each["title"] == title]
        text = asked.put_into(panel["targets"][0]["expr"])
        [sample] = prometheus.query(text, at=asked.end)
        return sample.value

    one = of_one(choice)
    key = '{namespace="ml",name="gpt"}'

    def series(name: str) -> float:
        [sample] = prometheus.query(name + key, at=one.end)
        return sample.value

    lost = series("training_job_lost_seconds_total")
    productive = series("training_job_productive_seconds_total")
    assert lost > 0
    assert shown("Progress preserved", one) == pytest.approx(1 - lost / (lost + productive))
    assert shown("Time to useful work", one) == pytest.approx(
        series("training_job_regain_mean_seconds")
    )


def test_the_waterfall_ends_where_it_must(prometheus: Prometheus, choice: Choice) -> None:
    """All time less all that went elsewhere is the time of new steps."""
    [panel] = [each for each in BOARDS["fleet"]["panels"] if each["type"] == "barchart"]
    bars = {
        target["refId"]: {
            sample.labels["bar"]: sample.value
            for sample in prometheus.query(choice.put_into(target["expr"]), at=choice.end)
        }
        for target in panel["targets"]
    }
    [whole] = bars["B"].values()
    left = whole
    elsewhere = bars["C"] | bars["D"]
    for bar in sorted(elsewhere):
        left -= elsewhere[bar]
        assert bars["A"][bar] == pytest.approx(left)
    assert list(bars["E"].values()) == pytest.approx([left])


def test_phases_are_shown_by_name(prometheus: Prometheus, choice: Choice) -> None:
    [panel] = [each for each in BOARDS["fleet"]["panels"] if each["title"] == "Phase"]
    words = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    found = prometheus.query(choice.put_into(panel["targets"][0]["expr"]), at=choice.end)
    shown = {sample.labels["name"]: words[f"{sample.value:.0f}"]["text"] for sample in found}
    assert shown == {
        "gpt": "Running",
        "bert": "Running",
        "vit": "Succeeded",
        "t5": "Failed",
        "whisper": "Running",
        "llama": "Held",
    }
    assert set(shown) == JOBS
