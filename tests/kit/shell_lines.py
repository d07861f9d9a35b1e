"""Commands of a shell snippet as a page shows it, each as its words. Runs nothing.

Enough of a shell's grammar for what pages contain: quotes over several lines, continued lines,
comments, pipes, command substitution, redirections, loops, functions and here-documents.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_ENDS = frozenset("\n;&|()")
_REDIRECTIONS = frozenset({">", ">>", "<", ">&", "<<"})
_BEFORE_A_COMMAND = frozenset({"do", "then", "else", "until", "while", "if", "!", "{", "time"})
_NO_COMMAND = frozenset({"done", "fi", "}", "for"})
_HERE = re.compile(r"<<'?(\w+)'?[^\n]*\n(.*?)^\1$", flags=re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """`commands`: words of each, quotes removed. `set_names`: variables given a value.
    `functions`: defined here. `documents`: the here-documents."""

    commands: tuple[tuple[str, ...], ...]
    set_names: frozenset[str]
    functions: frozenset[str]
    documents: tuple[str, ...]


def read(text: str) -> Snippet:
    documents = tuple(found[2] for found in _HERE.finditer(text))
    text = _HERE.sub(lambda found: found[0].split("\n", 1)[0].split("<<")[0] + "\n", text)
    functions = frozenset(re.findall(r"^(\w+) ?\(\) *\{", text, flags=re.MULTILINE))
    text = re.sub(r"^\w+ ?\(\) *\{", "{", text, flags=re.MULTILINE)
    commands: list[tuple[str, ...]] = []
    names: set[str] = set()
    for words in _split(_without_comments(text.replace("\\\n", " "))):
        while words and words[0] in _BEFORE_A_COMMAND:
            words = words[1:]
        while words and _ASSIGNMENT.match(words[0]):
            names.add(words[0].split("=", 1)[0])
            words = words[1:]
        if words and words[0] == "export":
            names |= {word.split("=", 1)[0] for word in words[1:]}
            continue
        if words and words[0] not in _NO_COMMAND:
            commands.append(tuple(words))
    return Snippet(
        commands=tuple(commands),
        set_names=frozenset(names),
        functions=functions,
        documents=documents,
    )


def _without_comments(text: str) -> str:
    kept: list[str] = []
    quote = ""
    index = 0
    while index < len(text):
        char = text[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (index == 0 or text[index - 1] in " \t\n"):
            end = text.find("\n", index)
            index = len(text) if end < 0 else end
            continue
        kept.append(char)
        index += 1
    return "".join(kept)


def _split(text: str) -> list[list[str]]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="\n();<>|&")
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    skips_next = False
    for token in lexer:
        if token in _REDIRECTIONS:
            # The number of what is redirected (2>) stands before it as a word of its own.
            if found[-1] and found[-1][-1] in {"1", "2"}:
                found[-1].pop()
            skips_next = True
        elif set(token) <= _ENDS:
            skips_next = False
            found.append([])
        elif skips_next:
            skips_next = False
        else:
            found[-1].append(token)
    return [words for words in found if words]
