"""Kubernetes quantities: `2`, `500m`, `14Mi`, `1e9`. Pure.

Grammar: apimachinery's resource.Quantity, signed number and one suffix.
"""

from __future__ import annotations

import re
from decimal import Decimal

_SUFFIXES = {
    "": Decimal(1),
    "m": Decimal(1) / 1000,
    **{
        unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)
    },
    **{
        unit: Decimal(1024) ** power
        for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
    },
}
_QUANTITY = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d{1,3})|([A-Za-z]*))$")


def parsed(value: object) -> int | None:
    """Whole units, rounded down; None for what is no quantity: the API server refuses that."""
    found = _QUANTITY.match(str(value)) if value is not None else None
    if found is None:
        return None
    number, exponent, suffix = found.groups()
    if exponent is not None:
        return int(Decimal(number) * Decimal(10) ** int(exponent))
    scale = _SUFFIXES.get(suffix or "")
    return int(Decimal(number) * scale) if scale is not None else None


def mebibytes(size: float) -> str:
    """`1536Mi` for that many bytes, rounded up."""
    return f"{-int(-size // 2**20)}Mi"
