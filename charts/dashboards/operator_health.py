"""The dashboard of the operator itself: whether it works, hears, and keeps up.

Must never filter by a job: what is shown is the operator's, and the two measures of all it serves.
Panel ids stay, for people link to them.
"""

from __future__ import annotations

from typing import Any

from frame import Board, datasource, many
from links import OPERATOR
from panels import PLAIN, Words, at, durations, lines, number
from promql import CHOSEN_OPERATORS as THESE
from promql import EVERYTHING, RATE, total
from shared import fallbacks, measures, restarts

PREFIX = "resumable_training_operator_"


def own(metric: str, *more: str) -> str:
    return THESE.select(PREFIX + metric, *more)


def rate(metric: str, *more: str, by: str) -> str:
    return f"sum by ({by}) (rate({own(metric, *more)}[{RATE}]))"


def quantile(share: float, metric: str) -> str:
    return f"histogram_quantile({share}, {rate(metric + '_bucket', by='le')})"


def state() -> list[Any]:
    silent = f"time() - {own('watch_last_activity_timestamp_seconds')}"
    rows: tuple[tuple[Words, str], ...] = (
        (
            Words(
                id=10,
                title="Replicas that work",
                text="One works and the others wait. With none nothing that dies is restarted; "
                "two have not noticed that the Lease changed hands.",
                limits=((None, "red"), (1, "green"), (2, "red")),
                alert="ResumableTrainingOperatorLeaderCount",
            ),
            f"sum(max by (instance) ({own('leader')})) or vector(0)",
        ),
        (
            Words(
                id=11,
                title="Replicas",
                text="Replicas that Prometheus hears, working or waiting.",
                limits=((None, "red"), (1, "orange"), (2, "green")),
                alert="ResumableTrainingOperatorDown",
            ),
            f"count(max by (instance) ({own('leader')})) or vector(0)",
        ),
        (
            Words(
                id=12,
                title="Longest silence of a watch",
                text="Seconds since the API server last answered a watch of the replica that "
                "works; it answers anew at least every five minutes, also where nothing changes.",
                unit="s",
                limits=((None, "green"), (330, "orange"), (900, "red")),
                alert="ResumableTrainingOperatorWatchStalled",
            ),
            f"max({silent} and on (job, instance) {own('leader')} == 1)",
        ),
        (
            Words(
                id=13,
                title="Oldest change not looked at",
                text="How long the oldest change has waited for a worker.",
                unit="s",
                limits=((None, "green"), (30, "orange"), (300, "red")),
                alert="ResumableTrainingOperatorQueueStuck",
            ),
            f"max({own('queue_oldest_seconds')})",
        ),
        (
            Words(
                id=14,
                title="Pods not heard",
                text="Pods whose reports are asked for and which do not answer. Many at once: a "
                "network policy, or the operator is outside the cluster.",
                limits=((None, "green"), (1, "orange")),
            ),
            f"sum({own('reports_followed')} - {own('reports_connected')})",
        ),
        (
            Words(
                id=15,
                title="Nodes kept off",
                text="Nodes that new pods keep off, for faults have pointed at them.",
                limits=((None, "green"), (1, "orange")),
            ),
            total("max by (node) (training_node_avoided)"),
        ),
    )
    return [
        number(words, expression, position=at(4 * place, 4, 4, 4))
        for place, (words, expression) in enumerate(rows)
    ]


def loop() -> list[Any]:
    bad = rate("handler_runs_total", 'result=~"retry|error"', by="handler")
    all_runs = rate("handler_runs_total", by="handler")
    return [
        lines(
            Words(
                id=16,
                title="Passes of the loop",
                text="By how they ended. A conflict is a write that somebody else was faster "
                "with; it is tried again at once.",
                unit="ops",
            ),
            {"{{result}}": rate("handler_runs_total", by="result")},
            position=at(0, 8, 12, 8),
        ),
        lines(
            Words(
                id=17,
                title="Share of passes that fail",
                text="Each is tried again. Above a fifth "
                "ResumableTrainingOperatorHandlerErrors fires by default.",
                unit="percentunit",
                limits=((None, "green"), (0.2, "red")),
                alert="ResumableTrainingOperatorHandlerErrors",
            ),
            {"{{handler}}": f"{bad}\n/ ({all_runs} > 0)"},
            position=at(12, 8, 12, 8),
            show_limits=True,
            most=1.0,
        ),
        durations(
            Words(
                id=18,
                title="Passes by duration",
                text="Time of one pass of the loop, its requests included.",
            ),
            f"sum by (le) (increase({own('handler_duration_seconds_bucket')}[{RATE}]))",
            position=at(0, 16, 12, 8),
        ),
        lines(
            Words(
                id=19,
                title="Queue",
                text="Jobs that wait for a worker, and passes put off by an error.",
                alert="ResumableTrainingOperatorQueueStuck",
            ),
            {
                "waiting": f"max({own('queue_depth')})",
                "put off since start": f"max({own('queue_retries')})",
            },
            position=at(12, 16, 12, 8),
            decimals=0,
        ),
    ]


def requests() -> list[Any]:
    return [
        lines(
            Words(
                id=20,
                title="Requests to the API server",
                text="By what is asked for; bursts are recoveries of large gangs.",
                unit="reqps",
            ),
            {"{{verb}} {{resource}}": rate("api_requests_total", by="verb, resource")},
            position=at(0, 24, 12, 9),
            stacked=True,
        ),
        lines(
            Words(
                id=21,
                title="Answers of the API server",
                text="By code; 0 is a server that was not reached, 409 a write that somebody else "
                "was faster with, 429 a server that wants fewer.",
                unit="reqps",
            ),
            {"{{code}}": rate("api_requests_total", by="code")},
            position=at(12, 24, 12, 9),
        ),
        lines(
            Words(
                id=22,
                title="How long a request takes",
                text="Half of the requests are faster than the lower line, all but one in a "
                "hundred than the upper.",
                unit="s",
                limits=((None, "green"), (1, "orange")),
            ),
            {
                "half": quantile(0.5, "api_request_duration_seconds"),
                "99 of 100": quantile(0.99, "api_request_duration_seconds"),
            },
            position=at(0, 33, 12, 9),
        ),
        lines(
            Words(
                id=23,
                title="Events received",
                text="By resource. Silence for long, while jobs run, is a watch that is dead.",
                unit="ops",
                alert="ResumableTrainingOperatorWatchStalled",
            ),
            {"{{resource}}": rate("watch_events_total", by="resource")},
            position=at(12, 33, 12, 9),
        ),
    ]


def decisions() -> list[Any]:
    replicas = f"max by (instance, version) ({own('build_info')})"
    score = "max by (node) (training_node_fault_score)"
    return [
        lines(
            Words(
                id=24,
                title="Decisions",
                text="Plans carried out, by the rule that made them; decisions.md says what each "
                "rule does.",
                unit="ops",
            ),
            {"{{rule}}": f"{rate('plans_total', by='rule')} > 0"},
            position=at(0, 42, 12, 9),
            stacked=True,
        ),
        lines(
            Words(
                id=25,
                title="Suspected nodes",
                text="Weight of the faults that point at a node; it fades. New pods keep off from "
                "the line on.",
                unit="none",
                limits=((None, "green"), (1.5, "red")),
            ),
            {"{{node}}": f'{score}\nor on () label_replace(vector(0), "node", "none", "", "")'},
            position=at(12, 42, 12, 9),
            show_limits=True,
            decimals=2,
        ),
        lines(
            Words(
                id=26,
                title="Versions",
                text="Replicas by the version that they run; two for long is an upgrade that "
                "stands still.",
                limits=PLAIN,
            ),
            {"{{version}}": f"count by (version) ({replicas})"},
            position=at(0, 51, 12, 7),
            decimals=0,
        ),
        lines(
            Words(
                id=27,
                title="Pods asked and heard",
                text="Pods whose reports are asked for, and those that are heard.",
            ),
            {
                "asked": f"sum({own('reports_followed')})",
                "heard": f"sum({own('reports_connected')})",
            },
            position=at(12, 51, 12, 7),
            decimals=0,
        ),
    ]


def build() -> Board:
    operators = many("operator", "Operator", f"label_values({PREFIX}build_info, job)")
    return Board(
        uid=OPERATOR,
        text="Whether the operator works, hears and keeps up; above, what that is worth to jobs.",
        variables=[datasource(), operators],
        marks=[restarts(EVERYTHING), fallbacks(EVERYTHING)],
        panels=[*measures(EVERYTHING), *state(), *loop(), *requests(), *decisions()],
    )
