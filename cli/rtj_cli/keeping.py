"""What a person says of retention on the command line, over what the job has."""

from __future__ import annotations

from typing import Annotated

import typer
from rtj_api.v1alpha1 import BestMode, Retention, Thin
from rtj_sidecar.runs.keeping import Best, Keep

from rtj_cli.saves import Refused
from rtj_cli.telling import Code

KeepLast = Annotated[int | None, typer.Option(min=1, help="The newest verified saves to keep.")]
KeepEvery = Annotated[
    int | None,
    typer.Option(min=1, help="And the first at or after each multiple of so many steps."),
]
KeepBest = Annotated[
    str | None,
    typer.Option(metavar="METRIC[:min|max[:COUNT]]", help="And the best: loss, val_acc:max:3."),
]
Thinning = Annotated[
    Thin | None, typer.Option(help="Of the others, ever fewer with their age, or none.")
]


def rules(
    told: Retention | None,
    *,
    last: int | None,
    every: int | None,
    best: str | None,
    thin: Thin | None,
) -> Keep:
    """Raises Refused for a --keep-best that cannot be read."""
    has = told or Retention()
    kept = has.keep_best
    found = None
    if best is not None:
        found = _best(best)
    elif kept is not None:
        found = Best(kept.metric, highest=kept.mode == BestMode.MAX, count=kept.count)
    thinning = thin or has.thin or Thin.GEOMETRIC
    return Keep(
        last=last if last is not None else has.keep_last,
        every=every if every is not None else has.keep_every,
        best=found,
        thin=thinning == Thin.GEOMETRIC,
    )


def _best(text: str) -> Best:
    metric, _, rest = text.partition(":")
    mode, _, count = rest.partition(":")
    if not metric or mode not in ("", "min", "max") or not (count or "1").isdecimal():
        raise Refused(f"--keep-best {text}: write METRIC, METRIC:max or METRIC:max:3", Code.USAGE)
    return Best(metric, highest=mode == "max", count=max(1, int(count or "1")))
