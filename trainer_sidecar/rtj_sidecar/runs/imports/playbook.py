"""`manifest.json` in the playbook's form, as another's trainer keeps it. Pure.

`{"checkpoints": [{"path", "epoch", "step", "validation_loss", "timestamp", "is_valid"}],
"latest_valid_checkpoint": "…"}`. What it says is a hint: files prove themselves, and content goes
before what stands here. Only `is_valid: false` is believed as it is, for it can only forbid.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

NAME = "manifest.json"
LARGEST = 64 << 20
_MOST = 100_000


@dataclass(frozen=True, slots=True)
class Stated:
    """One entry. `path` as it stands there; None: not stated, or no number."""

    path: str
    step: int | None = None
    epoch: int | None = None
    loss: float | None = None
    is_valid: bool | None = None


@dataclass(frozen=True, slots=True)
class Playbook:
    entries: tuple[Stated, ...]
    latest: str | None = None


class NoPlaybook(ValueError):
    """It is not in that form; the message says where."""


def read_playbook(data: bytes) -> Playbook:
    """Raises NoPlaybook. One entry that cannot be read condemns the document: it would be a save
    that silently was not considered."""
    try:
        document = json.loads(data)
    except ValueError as error:
        raise NoPlaybook(f"it is no JSON: {error}") from None
    except RecursionError:
        raise NoPlaybook("it is nested too deeply") from None
    found = document.get("checkpoints") if isinstance(document, Mapping) else None
    if not isinstance(found, list):
        raise NoPlaybook('it has no list "checkpoints"')
    if len(found) > _MOST:
        raise NoPlaybook(f'"checkpoints" has more than {_MOST} entries')
    latest = document.get("latest_valid_checkpoint")
    if latest is not None and not isinstance(latest, str):
        raise NoPlaybook('"latest_valid_checkpoint" is no text')
    return Playbook(tuple(_entry(each, at) for at, each in enumerate(found)), latest or None)


def _entry(value: object, at: int) -> Stated:
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        raise NoPlaybook(f'checkpoints[{at}] has no "path"')
    if not value["path"].strip():
        raise NoPlaybook(f'checkpoints[{at}]."path" is empty')
    valid = value.get("is_valid")
    if valid is not None and not isinstance(valid, bool):
        raise NoPlaybook(f'checkpoints[{at}]."is_valid" is neither true nor false')
    return Stated(
        path=value["path"],
        step=_whole(value.get("step")),
        epoch=_whole(value.get("epoch")),
        loss=_number(value.get("validation_loss")),
        is_valid=valid,
    )


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) and number >= 0 else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < 1e300 else None  # neither NaN nor infinite


def resolved(path: str, *, base: str, present: Collection[str]) -> str | None:
    """Where a path of the manifest lies, relative to the place; None where nothing is there.

    `base`: URL or absolute path of the place, without a slash at its end; `present`: every file and
    directory of it. An absolute path of another machine is looked for by its longest tail that is
    there: that is how a directory that was copied into a bucket is found.
    """
    text = unquote(urlsplit(path).path) if path.startswith("file://") else path
    root = unquote(urlsplit(base).path) if base.startswith("file://") else base
    text, root = text.rstrip("/"), root.rstrip("/")
    if text.startswith(f"{root}/"):
        text = text[len(root) + 1 :]
    is_absolute = text.startswith("/") or "://" in text
    clean = posixpath.normpath(text.partition("://")[2] if "://" in text else text).lstrip("/")
    if clean in present:
        return clean
    if not is_absolute:
        return None
    parts = clean.split("/")
    tails = ("/".join(parts[at:]) for at in range(1, len(parts)))
    return next((tail for tail in tails if tail in present), None)
