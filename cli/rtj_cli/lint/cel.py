"""The rules of the API, evaluated here: CEL as far as `rtj_api.validations` writes it.

A rule that uses more fails loudly when it is parsed; a test parses them all. Pure. Grammar and the
absorption of errors by && and || follow the language definition of CEL
(github.com/google/cel-spec), functions the extended libraries of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>r?'(?:[^'\\]|\\.)*'|r?\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<sign>\|\||&&|[=!<>]=|[-+*/%!<>?:.,()\[\]]))"
)
_MACROS = ("all", "exists", "exists_one", "filter", "map")
_COMPARED = ("==", "!=", "<", "<=", ">", ">=", "in")


class CelError(Exception):
    """The rule cannot be evaluated on this value: a field is missing, a type is another."""


class CelSyntax(ValueError):
    """The rule is not written in the part of CEL that is known here."""


@lru_cache(maxsize=512)
def compiled(rule: str) -> Node:
    """The rule as a function of its variables (`self`, `oldSelf`). Raises CelSyntax."""
    parser = _Parser(list(_tokens(rule)))
    found = parser.conditional()
    parser.expect("")
    return found


def _tokens(rule: str) -> Iterator[tuple[str, str]]:
    at, text = 0, rule.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise CelSyntax(f"{rule!r} at {at}")
        kind = str(found.lastgroup)
        yield kind, found[kind]
        at = found.end()
    yield "end", ""


def _unquoted(text: str) -> str:
    if text.startswith("r"):
        return text[2:-1]
    plain = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda found: plain.get(found[1], found[1]), text[1:-1])


@dataclass
class _Parser:
    """Recursive descent; each method returns the node of one level of precedence."""

    tokens: list[tuple[str, str]]
    at: int = 0

    def take(self) -> tuple[str, str]:
        found = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)  # the end is never passed
        return found

    def accept(self, *signs: str) -> str | None:
        kind, text = self.tokens[self.at]
        if kind in ("sign", "name") and text in signs:
            self.at += 1
            return text
        return None

    def expect(self, sign: str) -> None:
        kind, text = self.take()
        if text != sign or kind == "text":
            raise CelSyntax(f"{text!r} where {sign or 'the end'!r} is expected")

    def conditional(self) -> Node:
        test = self.either()
        if not self.accept("?"):
            return test
        yes = self.either()
        self.expect(":")
        no = self.conditional()
        return lambda scope: yes(scope) if _bool(test(scope)) else no(scope)

    def either(self) -> Node:
        left = self.both()
        while self.accept("||"):
            left = _logic(left, self.both(), decides=True)
        return left

    def both(self) -> Node:
        left = self.relation()
        while self.accept("&&"):
            left = _logic(left, self.relation(), decides=False)
        return left

    def relation(self) -> Node:
        left = self.sum()
        while sign := self.accept(*_COMPARED):
            left = _binary(sign, left, self.sum())
        return left

    def sum(self) -> Node:
        left = self.product()
        while sign := self.accept("+", "-"):
            left = _binary(sign, left, self.product())
        return left

    def product(self) -> Node:
        left = self.unary()
        while sign := self.accept("*", "%"):
            left = _binary(sign, left, self.unary())
        return left

    def unary(self) -> Node:
        if self.accept("!"):
            inner = self.unary()
            return lambda scope: not _bool(inner(scope))
        if self.accept("-"):
            inner = self.unary()
            return lambda scope: -inner(scope)
        return self.member()

    def member(self) -> Node:
        found = self.primary()
        while True:
            if self.accept("["):
                found = _indexed(found, self.conditional())
                self.expect("]")
            elif self.accept("."):
                found = self._after_dot(found)
            else:
                return found

    def _after_dot(self, of: Node) -> Node:
        name = self._name()
        if not self.accept("("):
            return _field(of, name)
        if name in _MACROS:
            variable = self._name()
            self.expect(",")
            body = self.conditional()
            self.expect(")")
            return _loop(name, of, variable, body)
        return _called(name, [of, *self._arguments()])

    def _name(self) -> str:
        kind, text = self.take()
        if kind != "name":
            raise CelSyntax(f"{text!r} where a name is expected")
        return text

    def _arguments(self, end: str = ")") -> list[Node]:
        found: list[Node] = []
        while not self.accept(end):
            if found:
                self.expect(",")
            found.append(self.conditional())
        return found

    def primary(self) -> Node:
        kind, text = self.take()
        if kind == "number":
            number = float(text) if "." in text else int(text)
            return lambda scope: number
        if kind == "text":
            words = _unquoted(text)
            return lambda scope: words
        if text == "(":
            inner = self.conditional()
            self.expect(")")
            return inner
        if text == "[":
            items = self._arguments("]")
            return lambda scope: [item(scope) for item in items]
        if kind != "name":
            raise CelSyntax(f"{text!r} begins nothing")
        if text in ("true", "false", "null"):
            constant = {"true": True, "false": False, "null": None}[text]
            return lambda scope: constant
        if self.accept("("):
            if text == "has":
                return self._has()
            return _called(text, self._arguments())
        return lambda scope: _variable(scope, text)

    def _has(self) -> Node:
        of = self.primary()
        name = ""
        while self.accept("."):
            if name:
                of = _field(of, name)
            name = self._name()
        self.expect(")")
        return lambda scope: isinstance(of(scope), Mapping) and name in of(scope)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"{value!r} is no truth value")
    return value


def _variable(scope: Scope, name: str) -> Any:
    if name not in scope:
        # Names of types, as in `type(self) == int`.
        if name in ("int", "string", "bool", "double", "list", "map"):
            return f"type {name}"
        raise CelError(f"no variable {name}")
    return scope[name]


def _logic(left: Node, right: Node, *, decides: bool) -> Node:
    """|| where `decides` is true, && where it is false: a side that decides absorbs an error."""

    def run(scope: Scope) -> bool:
        try:
            first = _bool(left(scope))
        except CelError:
            if _bool(right(scope)) == decides:
                return decides
            raise
        return first if first == decides else _bool(right(scope))

    return run


def _binary(sign: str, left: Node, right: Node) -> Node:
    from rtj_cli.lint.functions import BINARY

    run = BINARY[sign]

    def apply(scope: Scope) -> Any:
        try:
            return run(left(scope), right(scope))
        except TypeError as error:
            raise CelError(str(error)) from None

    return apply


def _field(of: Node, name: str) -> Node:
    def run(scope: Scope) -> Any:
        value = of(scope)
        if not isinstance(value, Mapping) or name not in value:
            raise CelError(f"no such key: {name}")
        return value[name]

    return run


def _indexed(of: Node, key: Node) -> Node:
    def run(scope: Scope) -> Any:
        try:
            return of(scope)[key(scope)]
        except (LookupError, TypeError) as error:
            raise CelError(str(error)) from None

    return run


def _loop(name: str, of: Node, variable: str, body: Node) -> Node:
    def each(scope: Scope) -> Iterator[tuple[Any, Any]]:
        found = of(scope)
        if not isinstance(found, (list, Mapping)):
            raise CelError(f"{found!r} has no parts")
        for item in list(found):
            yield item, body({**scope, variable: item})

    def run(scope: Scope) -> Any:
        if name == "map":
            return [value for _, value in each(scope)]
        if name == "filter":
            return [item for item, value in each(scope) if _bool(value)]
        if name == "exists_one":
            return sum(_bool(value) for _, value in each(scope)) == 1
        decides = name == "exists"
        for _, value in each(scope):
            if _bool(value) == decides:
                return decides
        return not decides

    return run


def _called(name: str, arguments: list[Node]) -> Node:
    from rtj_cli.lint.functions import FUNCTIONS

    if name not in FUNCTIONS:
        raise CelSyntax(f"no function {name}")
    run = FUNCTIONS[name]

    def apply(scope: Scope) -> Any:
        try:
            return run(*(argument(scope) for argument in arguments))
        except (TypeError, ValueError, AttributeError) as error:
            raise CelError(f"{name}: {error}") from None

    return apply
