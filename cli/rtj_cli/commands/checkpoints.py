"""`rtj checkpoints …`: the group, and how each of its commands comes to the run that is meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from rtj_cli.commands.guarded import guarded
from rtj_cli.targets import Asked, Place, reached
from rtj_cli.telling import CODES

EPILOG = "**Exit codes** of all of them: " + " · ".join(
    f"{code.value} {text}" for code, text in CODES.items()
)

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", epilog=EPILOG)


@app.callback()
def _group() -> None:
    """A run's saves in its store: look, prove, fetch, add, pin, mark, thin out.

    Works on the store itself. A job's name is looked up with your kubeconfig, and its Secret is
    read only if you may; else the credentials are those of AWS' tools: the environment, a profile,
    or the machine's identity.
    """


@contextmanager
def reached_run(
    target: str,
    run_id: str | None,
    endpoint: str | None,
    region: str | None,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
) -> Iterator[Place]:
    asked = Asked(
        target=target,
        run_id=run_id,
        endpoint=endpoint,
        region=region,
        namespace=namespace,
        context=context,
        kubeconfig=kubeconfig,
    )
    with guarded(), reached(asked) as place:
        yield place
