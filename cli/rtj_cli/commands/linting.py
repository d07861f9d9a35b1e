"""`rtj lint`: manifests, directories, charts and stdin, without a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rtj_cli import options
from rtj_cli.lint.linting import Finding, Linted, lint
from rtj_cli.telling import Code, Output, fail, say, show
from rtj_cli.views.words import plural

_ENDINGS = (".yaml", ".yml", ".json")
_HIDDEN = "."


def lint_command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Files, directories (all .yaml, .yml and .json below), charts (rendered by helm), "
            "or - for stdin: `helm template . | rtj lint -`.",
        ),
    ],
    values: Annotated[
        list[str] | None, typer.Option("--values", "-f", help="Values files for charts.")
    ] = None,
    output: options.Form = Output.TABLE,
) -> None:
    """Say what the API server would say of each ResumableTrainingJob, offline, with its line.

    Shape, unknown fields, bounds and the CRD's own rules, in the server's words. Other kinds are
    left alone. What only the cluster knows (a missing Secret, quota, admission) is not asked.

    Exit code 0: all would be taken; 1: there are errors; 3: no job was found.
    """
    told: list[Linted] = []
    for path in paths:
        for name, text in _texts(path, values or []):
            told.append(lint(text, file=name))
    findings = [finding for each in told for finding in each.findings]
    jobs = sum(len(each.jobs) for each in told)
    _print(findings, output)
    say(f"{plural(jobs, 'job')}, {plural(len(findings), 'error')}")
    if findings:
        raise typer.Exit(Code.INVALID)
    if not jobs:
        raise typer.Exit(Code.NOT_FOUND)


def _print(findings: list[Finding], output: Output) -> None:
    if output is Output.TABLE:
        for finding in findings:
            typer.echo(str(finding))
        return
    rows = [
        {
            "file": each.file,
            "line": each.line,
            "name": each.name,
            "field": each.field,
            "message": each.message,
        }
        for each in findings
    ]
    show(rows, output, columns={}, name=lambda row: f"{row['file']}:{row['line']}")


def _texts(path: str, values: list[str]) -> Iterator[tuple[str, str]]:
    """Name and text of each source; a chart is one."""
    if path == "-":
        yield "<stdin>", sys.stdin.read()
        return
    found = Path(path)
    if found.is_file():
        yield path, _read(found)
    elif found.is_dir():
        yield from _below(found, values)
    else:
        raise fail(f"{path}: no such file or directory", Code.NOT_FOUND)


def _below(directory: Path, values: list[str]) -> Iterator[tuple[str, str]]:
    if (directory / "Chart.yaml").is_file():
        yield str(directory), _rendered(directory, values)
        return
    for path in sorted(directory.iterdir()):
        if path.name.startswith(_HIDDEN):
            continue
        if path.is_dir():
            yield from _below(path, values)
        elif path.suffix in _ENDINGS:
            yield str(path), _read(path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise fail(f"{path}: cannot be read: {error}", Code.NOT_FOUND) from None


def _rendered(chart: Path, values: list[str]) -> str:
    """What `helm template` makes of it."""
    binary = shutil.which(os.environ.get("HELM", "helm"))
    if binary is None:
        raise fail(
            f"{chart} is a chart, and helm is not on PATH: install it, set HELM, or pipe the "
            f"result of `helm template {chart}` into `rtj lint -`",
            Code.USAGE,
        )
    command = [binary, "template", "lint", str(chart)]
    for each in values:
        command += ["--values", each]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise fail(f"{chart}: helm: {done.stderr.strip()}", Code.INVALID)
    return done.stdout
