"""Where a run goes on: what may be named as its beginning, and what differs from before.

The forms of `checkpoint.resumeFrom` and of the request `resume-from`, read alike by whoever checks
a spec and whoever looks into a store. Must never guess: what is none of the forms is an error that
names them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote, urlsplit

from rtj_api.stores import SCHEMES

SAVE = r"f[0-9]+-n[0-9]+(-s[0-9]+)?"
RUN_ID = r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*"
# A directory or file as the pods see it, written in full.
PATH = r"/[^/?#][^?#]*"
FORMS = (
    "write a save of this run by its full name (f3-n2-s400), another run of the same store by its "
    "ID (team/gpt) or one save of it (team/gpt/f3-n2-s400), the URL of such a run "
    "(s3://bucket/prefix/team/gpt), or where checkpoints of another origin lie: a directory that "
    "the trainer mounts (/data/old-run), a bucket path (s3://bucket/some/checkpoints; gs://, az:// "
    "and hdfs:// alike), or a manifest.json in either; `rtj inspect` lists the names"
)

_SCHEMES = {scheme.name for scheme in SCHEMES}
_SAVE = re.compile(SAVE)
_PATH = re.compile(PATH)
_RUN = re.compile(RUN_ID)
_SECRET_WORD = re.compile(r"(?i)key|token|secret|passw|passphrase|pass(?![a-z])|credential|auth")
_NAME = re.compile(r"[\w.\-]+")
_VALUE = (
    r"(?:(?:bearer|basic|token)[ \t]+)?"
    r"""(?:"[^"]*"|'[^']*'|["'].*|\\.|[^\s"'\\;&|])+"""
)
# After a name: =value as a shell writes it, ": "value" as JSON and Python do.
_ASSIGNED = re.compile(rf"""(?is)(["'\\\]]*[ \t]*[:=]+[ \t]*){_VALUE}""")
_FOLLOWING = re.compile(rf"(?is)([ \t]+)(?!-){_VALUE}")
_IN_URL = re.compile(r"(://)[^/\s@]+@")
_WORDS_TOLD = 3


class Whose(StrEnum):
    THIS = "this"  # a save of this run
    OTHER = "other"  # another run of the same store
    PLACE = "place"  # a URL: a run, or checkpoints of another origin
    PATH = "path"  # a directory or file of the pod: the same


@dataclass(frozen=True, slots=True)
class Named:
    """`run`: a run ID (OTHER), a URL (PLACE) or an absolute path (PATH); `save` None: the newest
    valid one."""

    whose: Whose
    run: str | None = None
    save: str | None = None


def read_named(value: str) -> Named:
    """What a value of resumeFrom names. Raises ValueError with the forms that exist."""
    text = value.strip().rstrip("/")
    if _SAVE.fullmatch(text):
        return Named(Whose.THIS, save=text)
    head, _, tail = text.rpartition("/")
    is_url = urlsplit(text).scheme in _SCHEMES and "://" in text
    if is_url or (_PATH.fullmatch(text) and not _has_dots(text)):
        whose = Whose.PLACE if is_url else Whose.PATH
        named = _SAVE.fullmatch(tail) is not None
        return Named(whose, run=head if named else text, save=tail if named else None)
    if head and _SAVE.fullmatch(tail) and _RUN.fullmatch(head):
        return Named(Whose.OTHER, run=head, save=tail)
    if _RUN.fullmatch(text):
        return Named(Whose.OTHER, run=text)
    raise ValueError(f"{value!r} names neither a save nor a run: {FORMS}")


def path_in(value: str) -> str | None:
    """The absolute path in a value of resumeFrom that the sidecar has to see; None where there is
    none."""
    try:
        named = read_named(value)
    except ValueError:
        return None
    if named.whose is Whose.PATH:
        return named.run
    if named.whose is Whose.PLACE and named.run is not None:
        url = urlsplit(named.run)
        return unquote(url.path) if url.scheme == "file" else None
    return None


def _has_dots(path: str) -> bool:
    return any(part in ("", ".", "..") for part in path[1:].split("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeWith:
    """What a job trains with, as far as two jobs of one run are compared. Unknown is None."""

    image: str | None = None
    command: Sequence[str] = ()
    world_size: int | None = None


def masked(command: Sequence[str]) -> list[str]:
    """The words of a command without what looks like a secret's value, also within a word that is
    a script (`sh -c "HF_TOKEN=… python t.py"`). Rather hides too much."""
    words: list[str] = []
    hide = False
    for word in command:
        name, equals, value = word.partition("=")
        one_name = not re.search(r"\s", name)
        if hide and not word.startswith("-"):
            words.append("***")
        elif equals and value and one_name and _SECRET_WORD.search(name):
            words.append(f"{name}=***")
        else:
            words.append(_without_secrets(word))
        is_option = word.startswith("-") and one_name and not equals
        hide = is_option and bool(_SECRET_WORD.search(word))
    return words


def _without_secrets(text: str) -> str:
    text = _IN_URL.sub(r"\1***@", text)
    pieces: list[str] = []
    done = 0
    for name in _NAME.finditer(text):
        if name.start() < done or not _SECRET_WORD.search(name[0]):
            continue
        value = _ASSIGNED.match(text, name.end())
        if value is None and name[0].startswith("-"):
            value = _FOLLOWING.match(text, name.end())
        if value is not None:
            pieces += [text[done : value.end(1)], "***"]
            done = value.end()
    return "".join([*pieces, text[done:]])


def changes(before: MadeWith, after: MadeWith) -> list[str]:
    """What differs, each in words; what was not recorded convicts nobody."""
    found: list[str] = []
    if before.image and after.image and before.image != after.image:
        found.append(f"image {before.image} -> {after.image}")
    if before.world_size and after.world_size and before.world_size != after.world_size:
        found.append(f"world size {before.world_size} -> {after.world_size}")
    old, new = list(before.command), list(after.command)
    if old and new and old != new:
        gone = [word for word in old if word not in new][:_WORDS_TOLD]
        come = [word for word in new if word not in old][:_WORDS_TOLD]
        told = [f"without {' '.join(gone)}"] * bool(gone) + [f"with {' '.join(come)}"] * bool(come)
        found.append(f"command ({', '.join(told) or 'the same words in another order'})")
    return found
