"""HTML and SVG out of Python: every text and attribute is escaped here and nowhere else. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


class Safe(str):
    """Markup that was made here, so that it is not escaped again."""

    __slots__ = ()


def text(value: Any) -> Safe:
    return value if isinstance(value, Safe) else Safe(escape(str(value), quote=True))


def tag(name: str, *inner: Any, **attributes: Any) -> Safe:
    """`class_` is class, `_` in a name is `-`; an attribute that is None is left out."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Safe(f"<{name}{told}>{''.join(text(each) for each in inner)}</{name}>")


def joined(parts: Iterable[Any]) -> Safe:
    return Safe("".join(text(part) for part in parts))


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: Sequence[int] = ()
) -> Safe:
    """`numbers`: columns that are set to the right."""

    def cells(row: Sequence[Any]) -> Iterable[Safe]:
        for index, cell in enumerate(row):
            yield tag("td", cell, class_="number" if index in numbers else None)

    head = tag("thead", tag("tr", *(tag("th", each) for each in heads)))
    body = tag("tbody", *(tag("tr", *cells(row)) for row in rows))
    return tag("div", tag("table", head, body), class_="wide")


def _number(value: Any) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
