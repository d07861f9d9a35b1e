"""Versions of the libraries that wrote a save, where its files state them.

`FoundSave.facts["versions"]` maps a library to its version as it stands in the files:
`pytorch-lightning_version` and `ds_version` in a torch file, Composer's `state.metadata`,
`transformers_version` in `config.json`, `*_version` in the header of safetensors.
A torch file does not state torch's own, unless the trainer put it there. A version is told, and a
change of it on a resume; nothing is ever refused because of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rtj_sidecar.checkpoints.formats.facts import VERSIONS, versions_in
from rtj_sidecar.checkpoints.formats.sniff import TORCH_SUFFIXES
from rtj_sidecar.checkpoints.layouts import common
from rtj_sidecar.checkpoints.layouts.grouping import name_of
from rtj_sidecar.checkpoints.paths import UnsafePathError
from rtj_sidecar.checkpoints.reader import Reader
from rtj_sidecar.checkpoints.types import FileEntry, FoundSave

_JSON = {
    "config.json": ("transformers_version", "_diffusers_version"),
    "adapter_config.json": ("peft_version",),
    "model_index.json": ("_diffusers_version",),
}
_MOST_FILES = 8
"""Looked into of one save: its first torch and safetensors files, and its configurations."""


def with_versions(save: FoundSave, reader: Reader) -> FoundSave:
    """The save with the fact, where anything states a version. Never raises."""
    found: dict[str, str] = {}
    for entry in _looked_into(save.files):
        for name, version in _stated(entry, reader).items():
            found.setdefault(name, version)
    if not found:
        return save
    return replace(save, facts={**save.facts, VERSIONS: dict(sorted(found.items()))})


def versions_of(facts: Mapping[str, object]) -> dict[str, str]:
    """Library -> version; empty where the facts state none, or are of another shape."""
    told = facts.get(VERSIONS)
    items = told.items() if isinstance(told, dict) else ()
    return {name: version for name, version in items if isinstance(version, str)}


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """(library, version before, version now) of those that both name and that differ, by name."""
    both = sorted(before.keys() & now.keys())
    return tuple((name, before[name], now[name]) for name in both if before[name] != now[name])


def _looked_into(files: Iterable[FileEntry]) -> list[FileEntry]:
    told: list[FileEntry] = []
    tensors = 0
    for entry in files:
        name = name_of(entry.path)
        if name in _JSON:
            told.append(entry)
        elif tensors < _MOST_FILES and entry.path.endswith((*TORCH_SUFFIXES, ".safetensors")):
            told.append(entry)
            tensors += 1
        if len(told) >= 2 * _MOST_FILES:
            break
    return told


def _stated(entry: FileEntry, reader: Reader) -> dict[str, str]:
    keys = _JSON.get(name_of(entry.path))
    try:
        if keys is not None:
            facts = common.json_of(reader, entry, keep=keys).facts
            return versions_in((key, facts.get(key)) for key in keys)
        if entry.path.endswith(".safetensors"):
            header = common.check_of(reader, entry).facts.get("metadata")
            return versions_in(header.items() if isinstance(header, dict) else ())
    except (OSError, UnsafePathError):
        return {}
    peek = common.peek_of(reader, entry)
    told = peek.facts.get(VERSIONS) if peek is not None else None
    return told if isinstance(told, dict) else {}
