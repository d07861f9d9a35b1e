"""What is wrong with each job in a text of manifests. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import ValidationError
from rtj_api import contract, crdgen
from rtj_api.v1alpha1 import JobSpec

from rtj_cli.lint.schema import Fault, Path, faults
from rtj_cli.lint.sources import BadYaml, Document, documents

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
PLACEHOLDER = "replace-with-"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the API server would refuse. `line` counts from 1."""

    file: str
    line: int
    name: str
    field: str
    message: str

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        return f"{self.file}:{self.line}: {where}{self.message}"


@dataclass(frozen=True, slots=True)
class Linted:
    """`jobs`: the names that were looked at; `others`: documents of other kinds, left alone."""

    jobs: tuple[str, ...]
    findings: tuple[Finding, ...]
    others: int


def lint(text: str, *, file: str) -> Linted:
    jobs: list[str] = []
    findings: list[Finding] = []
    others = 0
    try:
        for document in documents(text):
            for data, path in _objects(document.data, ()):
                if not _is_ours(data):
                    others += 1
                    continue
                name = str((data.get("metadata") or {}).get("name") or "?")
                jobs.append(name)
                findings += _of_job(data, path, document=document, name=name, file=file)
    except BadYaml as error:
        findings.append(Finding(file, error.line, "?", "", f"no YAML: {error}"))
    return Linted(tuple(jobs), tuple(findings), others)


def _objects(data: Any, path: Path) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """The object, or those of a List."""
    if not isinstance(data, Mapping):
        return
    if str(data.get("kind", "")).endswith("List") and isinstance(data.get("items"), list):
        for index, item in enumerate(data["items"]):
            yield from _objects(item, (*path, "items", index))
        return
    yield data, path


def _is_ours(data: Mapping[str, Any]) -> bool:
    return data.get("kind") == contract.KIND or str(data.get("apiVersion", "")).startswith(
        f"{contract.GROUP}/"
    )


def _of_job(
    data: Mapping[str, Any], path: Path, *, document: Document, name: str, file: str
) -> list[Finding]:
    shown = file if document.source is None else f"{file} ({document.source})"

    def finding(fault: Fault) -> Finding:
        line = document.line_of((*path, *fault.path))
        return Finding(shown, line, name, fault.field, fault.message)

    found = [finding(Fault(at[len(path) :], "stands twice")) for at in document.twice]
    return found + [finding(fault) for fault in job_faults(data)]


def job_faults(data: Mapping[str, Any]) -> list[Fault]:
    """What the API server would say of one object, in the server's own words for its rules."""
    found: list[Fault] = []
    if data.get("apiVersion") != contract.API_VERSION:
        found.append(Fault(("apiVersion",), f"must be {contract.API_VERSION}"))
    if data.get("kind") != contract.KIND:
        found.append(Fault(("kind",), f"must be {contract.KIND}"))
    found += _metadata(data.get("metadata") or {})
    found += faults(data, _schema())
    found += _placeholders(data, ())
    if not found:
        found += _model(data.get("spec"))
    return found


@cache
def _schema() -> Mapping[str, Any]:
    return crdgen.object_schema()


def _metadata(meta: Any) -> Iterator[Fault]:
    if not isinstance(meta, Mapping):
        return
    name = meta.get("name")
    if name is None and meta.get("generateName") is None:
        yield Fault(("metadata",), "name is required")
    elif name is not None and (not isinstance(name, str) or not _NAME.match(name)):
        yield Fault(
            ("metadata", "name"),
            f"{name!r} is no name: small letters, digits and '-', beginning and ending with a "
            "letter or digit",
        )


def _placeholders(value: Any, path: Path) -> Iterator[Fault]:
    """What `rtj import-job` left for a person to fill in."""
    if isinstance(value, Mapping):
        for key, sub in value.items():
            yield from _placeholders(sub, (*path, str(key)))
    elif isinstance(value, list):
        for index, sub in enumerate(value):
            yield from _placeholders(sub, (*path, index))
    elif isinstance(value, str) and PLACEHOLDER in value.lower():
        yield Fault(path, f"{value}: not filled in yet; the comment beside it says with what")


def _model(spec: Any) -> Iterator[Fault]:
    """What the models say beyond the schema, as the operator would."""
    try:
        JobSpec.model_validate(spec)
    except ValidationError as error:
        for each in error.errors():
            yield Fault(("spec", *each["loc"]), each["msg"])
