"""What is told as Degraded goes away by itself once it is over: no restart is needed for it."""

from __future__ import annotations

import ast
from pathlib import Path

import rtj_sidecar

# Told once for the life of the pod: neither the sidecar's settings nor the image change under it.
FOR_LIFE = {"store", "supervisor"}


def calls(name: str) -> dict[str, str]:
    """{the key as written, resolved through the module's constants: where}"""
    found: dict[str, str] = {}
    for path in sorted(Path(rtj_sidecar.__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr != name or not node.args:
                continue
            key = node.args[0]
            if isinstance(key, ast.Constant):
                found[str(key.value)] = f"{path.name}:{node.lineno}"
            elif isinstance(key, ast.Name) and key.id in constants:
                found[constants[key.id]] = f"{path.name}:{node.lineno}"
    return found


def test_every_trouble_that_is_told_is_taken_back_somewhere() -> None:
    told, healed = calls("degrade"), calls("heal")
    assert len(told) > 5
    for_ever = {key: where for key, where in told.items() if key not in healed}
    assert set(for_ever) <= FOR_LIFE, for_ever
