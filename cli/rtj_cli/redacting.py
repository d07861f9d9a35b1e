"""What leaves a cluster in a bundle has no secret in it. Pure.

By place (values of environment variables, data of anything, tokens) and by form (what looks like a
key or a password in any text). Must rather take out too much: a name says enough to find a fault.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

GONE = "[REDACTED]"
# Values that a fault cannot be understood without, and that hold no secret.
_PLAIN_VARIABLES = re.compile(
    r"^(RTJ_(?!CONFIG$)\w+|PET_\w+|NCCL_\w+|CUDA_VISIBLE_DEVICES|PYTHONUNBUFFERED|OMP_NUM_THREADS"
    r"|WORLD_SIZE|RANK|LOCAL_RANK|MASTER_ADDR|MASTER_PORT)$"
)
_SECRET_KEY = re.compile(
    r"passw(or)?d|secret(?!name|keyref|ref$|s?$)|token|credential(?!s?secret)|api[-_]?key"
    r"|access[-_]?key|private[-_]?key|connection[-_]?string|\bsas\b|authorization|cookie",
    re.IGNORECASE,
)
_SECRET_VALUES = (
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S
    ),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),  # JSON web tokens
    re.compile(r"\b(?:hf_|ghp_|gho_|github_pat_|glpat-|sk-|xox[abprs]-|npm_|wandb_)[\w-]{16,}"),
    re.compile(r"(?<=://)[^/\s:@'\"]+:[^/\s@'\"]+(?=@)"),  # user:password@host
)
_WORD = r"passw(?:or)?d|secret|token|credentials?|api[-_]?key|access[-_]?key|private[-_]?key"
_ASSIGNED = re.compile(
    rf"""(?P<head>["']?[\w.-]*(?:{_WORD}|authorization|signature|accountkey)[\w.-]*["']?"""
    r"""[ \t]*[=:][ \t]*(?:bearer +|basic +)?)(?P<value>"[^"]*"|'[^']*'|[^\s,;&"'}\]]+)""",
    re.IGNORECASE,
)
_FLAG = re.compile(rf"(?P<head>--?[\w-]*(?:{_WORD})[\w-]*[ =])(?P<value>\S+)", re.IGNORECASE)
_HARMLESS = re.compile(r"^[\"']?(?:true|false|null|none|\[REDACTED\]|)[\"']?$", re.IGNORECASE)
# Fields that name a Secret, and counts of tokens that a model reads.
_NAMES_ONE = re.compile(r"(?:credentialsSecret|secretName|secretRef|secretKeyRef)", re.IGNORECASE)
_COUNT = re.compile(r"tokens?", re.IGNORECASE)
_NUMBER = re.compile(r"^[\d.,eE+-]{1,12}$")


def text_without(text: str) -> str:
    """A log or a message without what looks like a secret."""
    for form in _SECRET_VALUES:
        text = form.sub(GONE, text)
    text = _FLAG.sub(_hidden, text)
    return _ASSIGNED.sub(_hidden, text)


def _hidden(found: re.Match[str]) -> str:
    head, value = found["head"], found["value"]
    is_count = _COUNT.search(head) is not None and _NUMBER.match(value) is not None
    if is_count or _HARMLESS.match(value) or _NAMES_ONE.search(head):
        return found[0]
    return head + GONE


def object_without(data: Any) -> Any:
    """An object of the API server: environment values, last-applied copies and texts."""
    if isinstance(data, Mapping):
        return _mapping(data)
    if isinstance(data, list):
        return _words([object_without(each) for each in data])
    return text_without(data) if isinstance(data, str) else data


def _words(words: list[Any]) -> list[Any]:
    """A command line: the word after `--password` is one."""
    found = list(words)
    for index, word in enumerate(words[:-1]):
        is_flag = isinstance(word, str) and word.startswith("-") and "=" not in word
        if is_flag and _SECRET_KEY.search(word) and isinstance(words[index + 1], str):
            found[index + 1] = GONE
    return found


def _mapping(data: Mapping[str, Any]) -> dict[str, Any]:
    if data.get("kind") in ("Secret", "ConfigMap"):
        meta = object_without(data.get("metadata"))
        return {"kind": data["kind"], "metadata": meta, "data": GONE}
    is_variable = "name" in data and isinstance(data.get("value"), str)
    is_hidden = is_variable and not _PLAIN_VARIABLES.match(str(data["name"]))
    found: dict[str, Any] = {}
    for key, value in data.items():
        if key in ("managedFields", "kubectl.kubernetes.io/last-applied-configuration"):
            continue
        is_secret = isinstance(value, str) and _SECRET_KEY.search(str(key)) is not None
        gone = is_secret or (key == "value" and is_hidden)
        found[key] = GONE if gone else object_without(value)
    return found
