"""The generated CRD: up to date, structural, documented, and of one mind with the models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rtj_api import crdgen
from rtj_api.v1alpha1 import JobSpec
from rtj_api.validations import ALL_RULES


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}.*")


def test_the_file_in_the_tree_is_what_the_models_say() -> None:
    assert crdgen.main(["--check"]) == 0


def test_check_fails_on_a_file_that_drifted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "crd.yaml"
    assert crdgen.main(["--check", "--output", str(target)]) == 1
    assert crdgen.main(["--output", str(target)]) == 0
    assert crdgen.main(["--check", "--output", str(target)]) == 0
    target.write_text(target.read_text().replace("maximum: 10000", "maximum: 9"))
    assert crdgen.main(["--check", "--output", str(target)]) == 1
    assert "python -m rtj_api.crdgen" in capsys.readouterr().err


def test_it_is_small_enough_for_kubectl_apply() -> None:
    assert len(crdgen.render().encode()) < crdgen.MAX_BYTES


def test_rendering_is_plain_yaml_without_anchors() -> None:
    text = crdgen.render()
    assert yaml.safe_load(text) == crdgen.crd()
    assert "&id" not in text


def test_every_node_is_structural() -> None:
    for path, node in nodes(crdgen.object_schema()):
        assert "$ref" not in node, path
        assert "title" not in node, path
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        if node.get("type") == "array":
            assert "x-kubernetes-list-type" in node, path
        if "properties" in node:
            assert "additionalProperties" not in node, path


def test_every_field_of_the_spec_is_explained() -> None:
    spec = crdgen.object_schema()["properties"]["spec"]
    users = [
        path
        for path, node in nodes(spec)
        if not node.get("description")
        and not path.startswith(".template.")
        and not path.endswith(("[]", ".*", "[].name"))
        and path not in (".sidecar.resources.limits",)
    ]
    assert users == []


def test_every_list_and_string_that_a_rule_reads_is_bounded() -> None:
    spec = crdgen.object_schema()["properties"]["spec"]
    unbounded = [
        path
        for path, node in nodes(spec)
        if (node.get("type") == "array" and "maxItems" not in node)
        or (
            node.get("type") == "string"
            and "maxLength" not in node
            and "enum" not in node
            and not path.endswith((".*", ".image"))
        )
    ]
    assert unbounded == []


def test_the_servers_defaults_are_the_models_defaults() -> None:
    def defaulted(value: Any, schema: dict[str, Any]) -> Any:
        """As the API server does it: top down, `{}` filled in from below."""
        if not isinstance(value, dict):
            return value
        result = dict(value)
        for name, child in schema.get("properties", {}).items():
            if name not in result and "default" in child:
                result[name] = child["default"]
            if name in result:
                result[name] = defaulted(result[name], child)
        return result

    wanted = {
        "checkpoint": {"path": "/c", "store": {"url": "s3://b"}},
        "template": {"spec": {"containers": [{"name": "t"}]}},
    }
    by_server = defaulted(wanted, crdgen.object_schema()["properties"]["spec"])
    assert by_server != wanted
    assert JobSpec.model_validate(by_server) == JobSpec.model_validate(wanted)
    stated = JobSpec.model_validate(wanted).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    # Empty lists and empty objects say nothing, so the server does not write them.
    assert _without_empty(by_server) == _without_empty(stated)


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _without_empty(child) for name, child in value.items()}
        return {name: child for name, child in kept.items() if child not in ({}, [])}
    return value


def test_columns_read_fields_that_exist() -> None:
    paths = {path for path, _ in nodes(crdgen.object_schema())}
    for name, _, path, _ in (*crdgen.COLUMNS, *crdgen.WIDE_COLUMNS):
        plain = path.replace('[?(@.type=="Running")]', "[]")
        assert plain in paths or plain.startswith(".metadata."), name


def test_rules_have_names_of_their_own_and_say_what_to_do() -> None:
    names = [rule.name for rule in ALL_RULES]
    assert len(set(names)) == len(names)
    written = {
        (entry["rule"], entry["message"])
        for _, node in nodes(crdgen.object_schema())
        for entry in node.get("x-kubernetes-validations", ())
    }
    assert written == {(rule.dump()["rule"], rule.message) for rule in ALL_RULES}
