"""`rtj import-job`: manifests of other operators become ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rtj_cli.converting.convert import READERS, Answers, convert, text_of
from rtj_cli.lint.sources import BadYaml, documents
from rtj_cli.telling import Code, fail, say
from rtj_cli.views.words import plural


def import_job_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Manifest of PyTorchJobs, TrainJobs, JobSets or Jobs, also of several documents; "
            "- for stdin: `kubectl get pytorchjob gpt -o yaml | rtj import-job -`.",
        ),
    ],
    path: Annotated[
        str | None, typer.Option(help="checkpoint.path: where the trainer writes its checkpoints.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="checkpoint.store.url: where they are kept.")
    ] = None,
    credentials: Annotated[
        str | None, typer.Option(help="checkpoint.store.credentialsSecret: name of the Secret.")
    ] = None,
) -> None:
    """Print PyTorchJobs, TrainJobs, JobSets and plain Jobs as ResumableTrainingJobs. Offline.

    In comments: what must be answered, what was not carried over and why, what became of the rest.
    Nothing is applied; `rtj lint` says what is still open.
    """
    answers = Answers(path=path, store=store, credentials=credentials)
    printed = 0
    try:
        for document in documents(_text(source)):
            for data in _objects(document.data):
                found = convert(data, answers=answers)
                if found is None:
                    say(f"left alone: {data.get('kind')} of {data.get('apiVersion')}")
                    continue
                typer.echo(("---\n" if printed else "") + text_of(found).rstrip())
                printed += 1
                say(
                    f"{found.manifest['metadata']['name']}: "
                    f"{plural(len(found.notes.questions), 'question')} to answer, "
                    f"{plural(len(found.notes.dropped), 'field')} not carried over"
                )
    except BadYaml as error:
        raise fail(f"{source}:{error.line}: no YAML: {error}", Code.USAGE) from None
    if not printed:
        raise fail(f"no {', '.join(READERS)} in {source}", Code.NOT_FOUND)


def _objects(data: Any) -> list[dict[str, Any]]:
    if not isinstance(data, dict):
        return []
    items = data.get("items")
    if str(data.get("kind", "")).endswith("List") and isinstance(items, list):
        return [each for each in items if isinstance(each, dict)]
    return [data]


def _text(source: str) -> str:
    if source == "-":
        return sys.stdin.read()
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise fail(f"{source}: cannot be read: {error}", Code.NOT_FOUND) from None
