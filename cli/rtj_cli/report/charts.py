"""The drawings of the page: attempts, steps, loss, and where the time went. Pure.

Colours are classes, so that light, dark and paper each have their own. Nothing is told by colour
alone: each mark has a title, and the tables below say the same in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rtj_cli.report.axes import Axis, around
from rtj_cli.report.marks import Safe, joined, tag
from rtj_cli.report.story import SavePoint, Story, begin_of, end_of, stretches
from rtj_cli.views.timeline import where
from rtj_cli.views.words import clock, number, percent, spaced, span

WIDTH, LEFT, RIGHT = 960, 150, 946
ROW, TOP, FOOT = 30, 8, 30
HEIGHT = 260


def svg(height: float, *inner: Safe, label: str) -> Safe:
    return tag(
        "svg",
        *inner,
        viewBox=f"0 0 {WIDTH} {height:.0f}",
        role="img",
        aria_label=label,
        xmlns="http://www.w3.org/2000/svg",
    )


def _title(words: str) -> Safe:
    return tag("title", words)


def _text(x: float, y: float, words: str, *, anchor: str = "start", class_: str = "t") -> Safe:
    return tag("text", words, x=x, y=y, text_anchor=anchor, class_=class_)


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Safe:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def _time_axis(axis: Axis, *, top: float, bottom: float) -> Safe:
    found: list[Safe] = []
    for at, words in axis.times():
        x = axis.at(at)
        found.append(_line(x, top, x, bottom, "grid"))
        anchor = "end" if x > RIGHT - 30 else "start" if x < LEFT + 30 else "middle"
        found.append(_text(x, bottom + 18, words, anchor=anchor))
    return joined(found)


def attempts(story: Story) -> Safe:
    """A row an attempt, its stages one after the other."""
    records = story.job.status.attempts
    height = TOP + ROW * len(records) + FOOT
    axis = Axis(story.begin, story.end, LEFT, RIGHT)
    rows = [_time_axis(axis, top=TOP, bottom=height - FOOT)]
    for index, record in enumerate(records):
        y = TOP + ROW * index
        label = f"#{record.attempt} {record.cause}"
        rows.append(_text(LEFT - 10, y + 19, _short(label, 22), anchor="end"))
        for part in stretches(story.job, record, now=story.now):
            x, wide = axis.at(part.begin), axis.at(part.end) - axis.at(part.begin)
            words = (
                f"attempt {record.attempt}: {spaced(part.stage).replace('_', ' ')}, "
                f"{span(part.end - part.begin)}, from {clock(part.begin)}"
            )
            rows.append(
                tag(
                    "rect",
                    _title(words),
                    x=x,
                    y=float(y + 5),
                    width=max(1.0, wide),
                    height=20,
                    class_=f"s-{part.stage}",
                )
            )
        if record.ended_by is not None:
            x = axis.at(end_of(story.job, record, now=story.now))
            told = f"ended by {record.ended_by} {where(record.culprit)}".rstrip()
            rows.append(tag("circle", _title(told), cx=x, cy=y + 15, r=4, class_="fault"))
    return svg(height, *rows, label="Attempts of the job over time, stage by stage")


def steps(story: Story) -> Safe | None:
    """Steps over time: up while an attempt trains, down where it goes back to a save."""
    lines: list[tuple[float, float, float, float, str]] = []
    for record in story.job.status.attempts:
        end = end_of(story.job, record, now=story.now)
        to_step = record.to_step
        if record.ended_at is None and record.attempt == story.job.status.attempt:
            to_step, seen = story.job.status.progress.step, story.job.status.progress.at
            end = seen if seen is not None else end
        if not record.started or to_step is None:
            continue
        parts = [p for p in stretches(story.job, record, now=story.now) if p.stage == "training"]
        begin = parts[0].begin if parts else begin_of(record)
        words = f"attempt {record.attempt}: step {record.from_step or 0} to {to_step}"
        lines.append((min(begin, end), float(record.from_step or 0), end, float(to_step), words))
    if not lines:
        return None
    saves = [each for each in story.saves if each.step is not None and not each.is_branch]
    low, high = around([each for line in lines for each in (line[1], line[3])])
    x_axis = Axis(story.begin, story.end, LEFT, RIGHT)
    y_axis = Axis(max(0.0, low), high, HEIGHT - FOOT, TOP + 6)
    drawn = [_time_axis(x_axis, top=TOP, bottom=HEIGHT - FOOT), _value_axis(y_axis, "step")]
    for index, (x1, y1, x2, y2, words) in enumerate(lines):
        if index:
            before = lines[index - 1]
            drawn.append(
                _line(
                    x_axis.at(before[2]), y_axis.at(before[3]), x_axis.at(x1), y_axis.at(y1), "back"
                )
            )
        drawn.append(
            tag(
                "line",
                _title(words),
                x1=x_axis.at(x1),
                y1=y_axis.at(y1),
                x2=x_axis.at(x2),
                y2=y_axis.at(y2),
                class_="work",
            )
        )
    for save in saves:
        if story.begin <= save.at <= story.end and y_axis.low <= (save.step or 0) <= y_axis.high:
            words = f"{save.name}, {save.state}, {clock(save.at)}"
            dot = {"cx": x_axis.at(save.at), "cy": y_axis.at(float(save.step or 0))}
            drawn.append(tag("circle", _title(words), r=3, class_="save", **dot))
    return svg(HEIGHT, *drawn, label="Steps over time, with the saves that they went back to")


def _value_axis(axis: Axis, what: str) -> Safe:
    found = [_text(LEFT - 96, TOP + 12, what)]
    for value in axis.ticks():
        y = axis.at(value)
        found.append(_line(LEFT, y, RIGHT, y, "grid"))
        found.append(_text(LEFT - 10, y + 4, number(float(value)), anchor="end"))
    return joined(found)


def loss(saves: Sequence[SavePoint]) -> Safe | None:
    """The loss that each save records, by step, a line an attempt; bad saves are crosses."""
    known = [each for each in saves if each.step is not None and each.loss is not None]
    known = [each for each in known if math.isfinite(each.loss or 0.0)]
    if len(known) < 2:
        return None
    x_low, x_high = around([float(each.step or 0) for each in known], share=0.02)
    y_low, y_high = around([each.loss or 0.0 for each in known])
    x_axis = Axis(max(0.0, x_low), x_high, LEFT, RIGHT)
    y_axis = Axis(y_low, y_high, HEIGHT - FOOT, TOP + 6)
    drawn = [_value_axis(y_axis, "loss")]
    for value in x_axis.ticks(8):
        x = x_axis.at(value)
        anchor = "end" if x > RIGHT - 30 else "middle"
        drawn.append(_text(x, HEIGHT - FOOT + 18, number(float(value)), anchor=anchor))
    drawn.append(_text(LEFT - 96, HEIGHT - FOOT + 18, "step"))
    for index, attempt in enumerate(sorted({each.attempt for each in known})):
        own = sorted((each for each in known if each.attempt == attempt), key=lambda s: s.step or 0)
        points = [(x_axis.at(float(s.step or 0)), y_axis.at(s.loss or 0.0), s) for s in own]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        drawn.append(tag("polyline", points=path, class_=f"line a{index % 6}"))
        for x, y, save in points:
            words = f"{save.name}: loss {number(save.loss)}, attempt {attempt}, {save.state}"
            is_good = save.state == "valid"
            class_ = f"dot a{index % 6}" if is_good else "fault"
            drawn.append(
                tag("circle", _title(words), cx=x, cy=y, r=3 if is_good else 5, class_=class_)
            )
        x, y, _ = points[0]
        drawn.append(
            _text(min(x + 6, RIGHT - 24), y - 7, f"#{attempt}", class_=f"t name a{index % 6}")
        )
    return svg(HEIGHT, *drawn, label="Loss by step, a line for each attempt")


def ledger(story: Story) -> Safe | None:
    """Where the time went: one bar a bucket, each beginning where the one before ends."""
    told = story.job.status.ledger
    if told is None or told.until <= told.since:
        return None
    buckets = [(name, seconds) for name, seconds in told.seconds.dump_seconds() if seconds > 0]
    whole = told.until - told.since
    axis = Axis(0.0, whole, LEFT, RIGHT - 130)
    height = TOP + ROW * (len(buckets) + 1) + 4
    at, drawn = 0.0, []
    for index, (name, seconds) in enumerate([*buckets, ("together", whole)]):
        y, is_sum = TOP + ROW * index, name == "together"
        begin = 0.0 if is_sum else at
        x, end = axis.at(begin), axis.at(begin + seconds)
        words = f"{span(seconds)}, {percent(seconds, whole)}"
        drawn.append(_text(LEFT - 10, y + 19, spaced(name), anchor="end"))
        drawn.append(
            tag(
                "rect",
                _title(f"{spaced(name)}: {words}"),
                x=x,
                y=y + 5,
                width=max(1.0, end - x),
                height=20,
                class_=f"b-{name}",
            )
        )
        drawn.append(_text(end + 8, y + 19, words))
        if not is_sum:
            at += seconds
            drawn.append(_line(axis.at(at), y + 25, axis.at(at), y + ROW + 5, "grid"))
    return svg(height, *drawn, label="Where the time of the job went")


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"
