"""The page: what happened, the drawings, and each decision with its evidence. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rtj_api.status import AttemptRecord, ConditionType

from rtj_cli.report import charts
from rtj_cli.report.marks import Safe, joined, table, tag
from rtj_cli.report.story import Decision, Story
from rtj_cli.report.style import STYLE
from rtj_cli.views import listing, timeline, why
from rtj_cli.views.describing import pod_lines
from rtj_cli.views.words import clock, number, percent, spaced, span, text_of

_NOTHING_LOADED = "default-src 'none'; style-src 'unsafe-inline'"
_STAGES = ("detect", "back_off", "schedule", "restore", "start", "training", "waiting")
_KEYS = {
    "detect": "heard of and decided",
    "back_off": "back-off",
    "schedule": "scheduled",
    "restore": "prepared, restored",
    "start": "started, warmed up",
    "training": "training",
    "waiting": "never started",
}


def page(story: Story) -> str:
    """The whole file."""
    job = story.job
    head = tag(
        "head",
        Safe('<meta charset="utf-8">'),
        Safe('<meta name="viewport" content="width=device-width,initial-scale=1">'),
        Safe(f'<meta http-equiv="Content-Security-Policy" content="{_NOTHING_LOADED}">'),
        tag("title", f"{job.full_name}: {job.status.phase.value}"),
        tag("style", Safe(STYLE)),
    )
    body = tag("body", *_parts(story))
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _parts(story: Story) -> Iterator[Safe]:
    job = story.job
    yield tag("h1", job.full_name)
    place = job.store_url or "its checkpoint volume"
    yield tag("p", f"As of {clock(story.now)} · run {job.run_id} in {place}", class_="dim")
    yield _why(story)
    yield _facts(story)
    if story.missing:
        told = tag("ul", *(tag("li", each) for each in story.missing))
        yield tag("div", tag("b", "Not on this page"), told, class_="missing")
    yield from _drawing("Attempts", charts.attempts(story), key=True)
    yield from _drawing("Steps over time", charts.steps(story))
    yield from _drawing("Loss across restarts", charts.loss(story.saves))
    yield from _drawing("Where the time went", charts.ledger(story))
    yield tag("h2", "Each attempt, and why")
    for record in reversed(job.status.attempts):
        yield _attempt(story, record)
    yield from _conditions(story)
    yield from _decisions(story)
    yield from _saves(story)
    yield from _events(story)
    if story.pods:
        yield tag("h2", "Pods")
        yield tag("pre", "\n".join(pod_lines(story.pods)))


def _why(story: Story) -> Safe:
    told = why.explain(story.job, pods=story.pods, now=story.now)
    status = story.job.status
    is_bad = status.hold is not None or status.is_true(ConditionType.FAILED)
    is_good = status.is_true(ConditionType.RUNNING) or status.is_true(ConditionType.COMPLETE)
    class_ = "why bad" if is_bad else "why good" if is_good else "why"
    inner = [tag("b", told.headline), tag("ul", *(tag("li", each) for each in told.evidence))]
    if told.next:
        inner += [tag("b", "Next"), tag("ul", *(tag("li", each) for each in told.next))]
    return tag("div", *inner, class_=class_)


def _facts(story: Story) -> Safe:
    row, status = listing.row(story.job), story.job.status
    ledger = status.ledger
    lost = None if ledger is None else ledger.seconds.lost
    recovery = None
    if ledger is not None and ledger.recoveries:
        recovery = ledger.recovery_seconds / ledger.recoveries
    told = (
        ("phase", row["phase"]),
        ("step", row["step"]),
        ("durable step", row["durableStep"]),
        ("loss", number(row["loss"])),
        ("starts", status.starts),
        ("restarts after faults", status.restarts),
        ("goodput", None if row["goodput"] is None else percent(row["goodput"], 1.0)),
        ("work done again", span(lost)),
        ("fault to next step, mean", span(recovery)),
        ("spares ready", row["spares"]),
    )
    boxes = (
        tag("div", tag("b", value), tag("span", name), class_="fact")
        for name, value in told
        if value not in (None, "")
    )
    return tag("div", *boxes, class_="facts")


def _drawing(title: str, drawn: Safe | None, *, key: bool = False) -> Iterator[Safe]:
    if drawn is None:
        return
    yield tag("h2", title)
    yield tag("div", drawn, class_="scroll")
    if key:
        marks = (tag("span", tag("i", class_=f"s-{s}"), _KEYS[s]) for s in _STAGES)
        yield tag("div", *marks, class_="key")


def _attempt(story: Story, record: AttemptRecord) -> Safe:
    row = timeline.row(story.job, record, now=story.now)
    status, told = story.job.status, text_of(record.cause)
    lines = [
        tag("h3", f"#{record.attempt} · {record.kind.value} · {record.cause}"),
        tag("p", _summary(row), class_="dim"),
    ]
    if told is not None:
        lines.append(tag("p", told.meaning))
    culprit = record.culprit
    if culprit is not None:
        facts = culprit.model_dump(by_alias=True, exclude_none=True)
        evidence = ", ".join(f"{spaced(k)} {v}" for k, v in facts.items() if k != "message")
        lines.append(tag("p", tag("b", "Evidence: "), evidence or "none but its words"))
        if culprit.message:
            lines.append(tag("pre", culprit.message))
    resume = status.resume
    if resume is not None and resume.attempt == record.attempt:
        lines.append(tag("p", tag("b", "Began from: "), resume.reason))
        lines += [
            tag("p", f"passed over {each.name}: {each.alike}{each.where}")
            for each in resume.suspects
        ]
    current = status.current
    if current is not None and current.attempt == record.attempt and current.avoid_nodes:
        lines.append(tag("p", f"kept off {', '.join(current.avoid_nodes)}"))
    if told is not None and told.remedy and culprit is not None:
        lines.append(tag("p", told.remedy.replace("<name>", story.job.name), class_="dim"))
    return tag("div", *lines, class_="attempt")


def _summary(row: dict[str, object]) -> str:
    parts = [f"recorded {clock(row['recordedAt'])}"]  # type: ignore[arg-type]
    if row["started"]:
        begin = f"from step {row['fromStep'] or 0}"
        parts.append(
            begin + (", no step seen" if row["toStep"] is None else f" to {row['toStep']}")
        )
    else:
        parts.append("never started")
    if row["lostSteps"]:
        parts.append(f"{row['lostSteps']} steps done again")
    stages = row["stages"]
    if isinstance(stages, dict) and stages:
        passed = ", ".join(f"{s.replace('_', '-')} {span(v)}" for s, v in stages.items() if v)
        parts.append(f"{span(row['downSeconds'])} to work ({passed})")  # type: ignore[arg-type]
    if row["endedBy"]:
        parts.append(f"ended by {row['endedBy']}")
    return " · ".join(parts)


def _conditions(story: Story) -> Iterator[Safe]:
    rows = [
        (each.type.value, each.status, each.reason, each.message, clock(each.last_transition_time))
        for each in story.job.status.conditions
    ]
    if rows:
        yield tag("h2", "Conditions")
        yield table(("condition", "is", "reason", "message", "since"), rows)


def _decisions(story: Story) -> Iterator[Safe]:
    if not story.decisions:
        return
    yield tag("h2", "What the operator decided, and on what evidence")
    rows = [(clock(each.at), each.rule, _decision(each)) for each in story.decisions]
    yield table(("time", "rule", "decision"), rows, numbers=(0,))


def _decision(told: Decision) -> Safe:
    parts = [tag("p", told.why)]
    parts += [tag("p", each, class_="dim") for each in told.actions]
    if told.evidence:
        text = json.dumps(told.evidence, indent=1, ensure_ascii=False)
        parts.append(tag("details", tag("summary", "evidence"), tag("pre", text)))
    return joined(parts)


def _saves(story: Story) -> Iterator[Safe]:
    if not story.saves:
        return
    newest = sorted(story.saves, key=lambda each: each.at, reverse=True)[:40]
    yield tag("h2", f"Saves ({len(story.saves)}; the newest {len(newest)})")
    rows = [
        (
            each.name,
            "" if each.step is None else each.step,
            number(each.loss),
            each.attempt,
            clock(each.at),
            each.state + (", branch" if each.is_branch else ""),
        )
        for each in newest
    ]
    yield table(("save", "step", "loss", "attempt", "durable", "state"), rows, numbers=(1, 2, 3, 4))


def _events(story: Story) -> Iterator[Safe]:
    if not story.events:
        return
    yield tag("h2", "Events")
    rows = [
        (clock(each["lastTime"]), each["type"], each["reason"], each["count"], each["message"])
        for each in story.events
    ]
    yield table(("time", "type", "reason", "times", "message"), rows, numbers=(0, 3))
