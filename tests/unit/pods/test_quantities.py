"""Kubernetes quantities, as apimachinery reads them."""

import pytest
from rtj_operator.core.quantities import parsed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, None),
        ("2", 2),
        (7, 7),
        ("1500m", 1),
        ("14Mi", 14 << 20),
        ("1.5Gi", 3 << 29),
        ("2k", 2000),
        ("1e9", 10**9),
        ("1E", 10**18),
        ("many", None),
        ("5MiB", None),
    ],
)
def test_quantities(text: object, value: int | None) -> None:
    assert parsed(text) == value
