"""`rtj plan`: sizes, intervals and bandwidth before there is a job. Looks at nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from rtj_cli import options, planning
from rtj_cli.telling import Output, show, size

ROWS = {
    "full state": lambda row: size(row["stateBytes"]),
    "interrupted every": lambda row: _time(row["mttiSeconds"]),
    "save every": lambda row: (
        _time(row["saveEverySeconds"])
        + (f" ({row['saveEverySteps']} steps)" if row["saveEverySteps"] else "")
    ),
    "durable every": lambda row: _time(row["durableEverySeconds"]),
    "upload": lambda row: f"{size(row['neededBytesPerSecond'])}/s",
    "per node": lambda row: f"{size(row['perNodeBytesPerSecond'])}/s",
    "time lost": lambda row: f"{100 * row['lostShare']:.1f} %",
}
LINES = {"what": lambda line: line["what"], "figure": lambda line: line["figure"]}


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plan_command(
    parameters: Annotated[float, typer.Option(help="Trained parameters, such as 70e9.", min=1)],
    nodes: Annotated[float, typer.Option(help="Nodes of 8 GPUs.", min=1)] = 1,
    stall: Annotated[
        float | None,
        typer.Option(help="Seconds for which a save stops the steps.", min=0.001),
    ] = None,
    step: Annotated[float | None, typer.Option(help="Seconds of one step.", min=0.001)] = None,
    failures_per_node_day: Annotated[
        float, typer.Option(help="Of one node.", min=1e-9)
    ] = planning.FAILURES_PER_NODE_DAY,
    output: options.Form = Output.TABLE,
) -> None:
    """Tell how large saves will be, how often to make them, and the bandwidth that they need.

    A full state in mixed precision with Adam takes 12 bytes for each parameter. Without `--stall`
    saves are a tenth of the time between interruptions apart. A running job's own figures are in
    its `status.interval`.
    """
    row = planning.plan(
        parameters=parameters,
        nodes=nodes,
        stall=stall,
        step=step,
        per_node_day=failures_per_node_day,
    )
    if output is not Output.TABLE:
        show([row], output, columns={}, name=lambda found: str(found["saveEverySeconds"]), one=True)
        return
    lines = [{"what": what, "figure": figure(row)} for what, figure in ROWS.items()]
    show(lines, output, columns=LINES)
