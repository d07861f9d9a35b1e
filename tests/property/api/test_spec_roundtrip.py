"""Any spec that the server's schema takes is read without loss, and written so that it is taken.

Specs are made up from the schema itself: every field may be there or not, within its bounds.
"""

from __future__ import annotations

from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st
from rtj_api.crdgen import object_schema
from rtj_api.v1alpha1 import JobSpec

SCHEMA = object_schema()["properties"]["spec"]
QUANTITIES = st.one_of(st.integers(0, 64), st.sampled_from(["500m", "1.5Gi", "2", "1e3", ".5"]))
ANYTHING = st.recursive(
    st.one_of(st.booleans(), st.integers(-9, 9), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(min_size=1, max_size=4), inner)
    ),
    max_leaves=4,
)


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What this node of a structural schema takes."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return QUANTITIES
    kind = schema["type"]
    if kind == "object":
        return _objects(schema)
    if kind == "array":
        most = min(schema.get("maxItems", 3), 3)
        return st.lists(
            values(schema["items"]),
            min_size=schema.get("minItems", 0),
            max_size=most,
            unique_by=(lambda item: item["name"])
            if schema["x-kubernetes-list-type"] == "map"
            else repr,
        )
    if kind == "boolean":
        return st.booleans()
    bounds = {"min_value": schema.get("minimum"), "max_value": schema.get("maximum")}
    if kind == "integer":
        return st.integers(**bounds)
    if kind == "number":
        return st.floats(**bounds, allow_nan=False, allow_infinity=False)
    if "pattern" in schema:
        return st.from_regex(schema["pattern"], fullmatch=True).filter(
            lambda text: len(text) <= schema.get("maxLength", 64)
        )
    return st.text(min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 8), 8))


def _objects(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    known = {name: values(child) for name, child in schema.get("properties", {}).items()}
    required = set(schema.get("required", ()))
    fixed = st.fixed_dictionaries(
        {name: known[name] for name in known if name in required},
        optional={name: known[name] for name in known if name not in required},
    )
    if isinstance(schema.get("additionalProperties"), dict):
        return st.dictionaries(
            st.text("abc/.", min_size=1, max_size=4),
            values(schema["additionalProperties"]),
            max_size=2,
        )
    if not schema.get("x-kubernetes-preserve-unknown-fields"):
        return fixed
    unknown = st.dictionaries(st.sampled_from(["fieldOfTheFuture", "x"]), ANYTHING, max_size=1)
    return st.tuples(unknown, fixed).map(lambda pair: pair[0] | pair[1])


def lost(given_: Any, kept: Any, path: str = "spec") -> list[str]:
    """Paths of what was given and is not there, or is another, afterwards."""
    if isinstance(given_, dict):
        if not isinstance(kept, dict):
            return [path]
        return [
            found
            for key, value in given_.items()
            for found in (lost(value, kept[key], f"{path}.{key}") if key in kept else [path])
        ]
    if isinstance(given_, list) and isinstance(kept, list) and len(given_) == len(kept):
        pairs = enumerate(zip(given_, kept, strict=True))
        return [found for at, pair in pairs for found in lost(*pair, f"{path}[{at}]")]
    return [] if given_ == kept else [path]


@settings(deadline=None)
@given(values(SCHEMA))
def test_a_spec_that_the_schema_takes_survives_reading_and_writing(wanted: dict[str, Any]) -> None:
    spec = JobSpec.model_validate(wanted)
    written = spec.dump()
    assert lost(wanted, written) == []
    assert JobSpec.model_validate(written) == spec
    jsonschema.validate(written, SCHEMA, cls=jsonschema.Draft4Validator)
