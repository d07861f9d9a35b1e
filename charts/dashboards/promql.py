"""PromQL of the dashboards: who is asked about, and each series counted once.

Two replicas and two scrapers show a job's series more than once, so every one of a job goes through
`max by` the labels that make it that job's. Must never hold a number that a panel shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RATE = "$__rate_interval"
SECONDS = "training_job_time_seconds_total"
# What a job's time can go to beside new steps, in the order in which it is taken off.
OVERHEADS = (
    ("suspended", "suspended"),
    ("queue", "in the queue"),
    ("hold", "held, back-off"),
    ("schedule", "placed again"),
    ("detect", "fault unnoticed"),
    ("decide", "deciding"),
    ("start", "starting"),
    ("restore", "restoring"),
    ("checkpoint_stall", "saving"),
)
LOST = ("lost", "done twice")
USEFUL = ("productive", "new steps")
BUCKETS = (*OVERHEADS, LOST, USEFUL)


@dataclass(frozen=True)
class Asked:
    """Whose series: label matchers, without braces."""

    matchers: str = ""

    def select(self, metric: str, *more: str) -> str:
        matchers = ",".join(part for part in (self.matchers, *more) if part)
        return f"{metric}{{{matchers}}}" if matchers else metric

    def job(self, metric: str, *more: str, by: str = "", condition: str = "") -> str:
        """One series a job (and a `by`)."""
        labels = f"namespace, name, {by}" if by else "namespace, name"
        return f"max by ({labels}) ({self.select(metric, *more)}{condition})"

    def rate(self, metric: str, *more: str, by: str = "", how: str = "rate") -> str:
        labels = f"namespace, name, {by}" if by else "namespace, name"
        return f"max by ({labels}) ({how}({self.select(metric, *more)}[{RATE}]))"

    def phase(self, phase: str) -> str:
        return self.job("training_job_status_phase", f'phase="{phase}"')


EVERYTHING = Asked()
CHOSEN_JOBS = Asked('namespace=~"$namespace",name=~"$name"')
CHOSEN_NAMESPACES = Asked('namespace=~"$namespace"')
ONE_JOB = Asked('namespace="$namespace",name="$name"')
ITS_NAMESPACE = Asked('namespace="$namespace"')
CHOSEN_OPERATORS = Asked('job=~"$operator"')


def total(expression: str) -> str:
    """No job at all is 0 jobs, and not "no data"."""
    return f"sum({expression}) or vector(0)"


def preserved(asked: Asked) -> str:
    """Of the time that went to steps, the share that was not work done before."""
    productive = f"sum({asked.job('training_job_productive_seconds_total')})"
    lost = f"sum({asked.job('training_job_lost_seconds_total')})"
    return f"{productive}\n/ ({productive} + {lost} > 0)"


def time_to_useful_work(asked: Asked) -> str:
    """Mean seconds from a fault to the first step never made before, each fault counted once."""
    regain = asked.job("training_job_regain_mean_seconds")
    faults = asked.job("training_job_interruptions_total")
    return (
        f"sum({regain} * on (namespace, name) {faults})\n"
        f"/ sum({faults} and on (namespace, name) {regain})"
    )


def goodput(asked: Asked) -> str:
    productive = asked.job(SECONDS, 'bucket="productive"')
    return f"sum({productive})\n/ (sum({asked.job(SECONDS, by='bucket')}) > 0)"


def place(number: int) -> str:
    """Of a bar in the waterfall; sorts as text."""
    return f"{number:02d}"


def _bars(bars: Sequence[tuple[int, str]]) -> str:
    return "\nor ".join(
        f'label_replace({expression}, "bar", "{place(number)}", "", "")'
        for number, expression in bars
    )


def waterfall(asked: Asked) -> dict[str, str]:
    """From all time down to new steps: by the name of a colour's series, its bars; `below` is what
    each bar stands on."""

    def seconds(*buckets: str) -> str:
        matcher = f'bucket=~"{"|".join(buckets)}"'
        return f"sum({asked.job(SECONDS, matcher, by='bucket')})"

    names = [bucket for bucket, _ in BUCKETS]
    last = len(names) + 1
    on = [names[number + 1 :] for number in range(len(names) - 1)]
    return {
        "below": _bars([(number + 2, seconds(*under)) for number, under in enumerate(on)]),
        "all": _bars([(1, seconds(*names))]),
        "overhead": _bars([(i + 2, seconds(name)) for i, (name, _) in enumerate(OVERHEADS)]),
        "lost": _bars([(last - 1, seconds(LOST[0]))]),
        "useful": _bars([(last, seconds(USEFUL[0]))]),
    }
