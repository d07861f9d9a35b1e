"""Each command and manifest on a page is one that its tool and our API understand.

A block marked `<!-- run by TEST -->` is run by that test; every other one is read by the real
parsers. So an option, a field, a value or a target that is renamed fails here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import page_commands, page_fields, shell_lines
from kit.pages import PAGES, ROOT, fences, named
from rtj_api import contract
from rtj_cli.lint.linting import job_faults

SOURCES = ("crds", "operator", "trainer_sidecar", "cli", "tests", "scripts", "devcluster")


def shells(page: Path) -> list[shell_lines.Snippet]:
    return [shell_lines.read(f.body) for f in fences(page) if f.language in {"sh", "bash"}]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_each_command_is_understood_by_its_tool(page: Path) -> None:
    wrong = [
        problem
        for snippet in shells(page)
        for words in snippet.commands
        for problem in page_commands.problems(words, functions=snippet.functions)
    ]
    assert wrong == []


INLINE = re.compile(r"`((?:kubectl|rtj|helm|make|python|docker) [^`\n]+)`")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_each_command_of_ours_that_a_sentence_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = re.findall(r"`(?:kubectl )?rtj ([a-z][a-z-]*(?: [a-z][a-z-]*)?)", text)
    assert [name for name in names if not page_commands.is_command_of_ours(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_each_command_of_ours_with_its_words_is_taken_by_its_parser(page: Path) -> None:
    """In a sentence too, where more than the command's name is said."""
    text = re.sub(r"^( *)```.*?^\1```[ ]*$", "", page.read_text("utf-8"), flags=re.M | re.S)
    wrong = []
    for found in re.findall(r"`((?:kubectl )?rtj [^`\n]+)`", text):
        is_synopsis = "[OPTIONS]" in found or "…" in found or "..." in found or "|" in found
        for words in () if is_synopsis else shell_lines.read(found).commands:
            if not page_commands.is_only_a_name(words):
                wrong += page_commands.problems(words)
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_each_command_within_the_text_is_understood_too(page: Path) -> None:
    text = re.sub(r"^( *)```.*?^\1```[ ]*$", "", page.read_text("utf-8"), flags=re.M | re.S)
    wrong = []
    for found in INLINE.findall(text):
        # `kubectl describe`, `rtj run --probe …`: a name in a sentence, no command line.
        if found.startswith("rtj ") or found.count(" ") == 1 or "…" in found or "|" in found:
            continue
        for words in shell_lines.read(found).commands:
            wrong += page_commands.problems(words)
    assert wrong == []


def _is_known(name: str) -> bool:
    """Whether any of our sources reads a variable of this name."""
    return any(
        name in path.read_text(encoding="utf-8", errors="ignore")
        for source in SOURCES
        for path in (ROOT / source).rglob("*")
        if path.suffix in {".py", ".sh", ""} and path.is_file() and "__pycache__" not in path.parts
    )


def test_each_variable_of_ours_is_read_somewhere() -> None:
    names = {name for page in PAGES for snippet in shells(page) for name in snippet.set_names}
    assert {name for name in names if name.startswith("RTJ_") and not _is_known(name)} == set()


def documents(page: Path) -> list[Any]:
    texts = [fence.body for fence in fences(page) if fence.language in {"yaml", "json"}]
    texts += [document for snippet in shells(page) for document in snippet.documents]
    return [each for text in texts for each in yaml.safe_load_all(text)]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_each_manifest_is_one_that_the_api_takes(page: Path) -> None:
    """A whole one as `rtj lint` has it; a part by the names of its fields."""
    for document in documents(page):
        if not isinstance(document, dict):
            continue
        if document.get("kind") == contract.KIND:
            assert document["apiVersion"] == contract.API_VERSION
            assert [fault.message for fault in job_faults(document)] == []
        if document.get("kind", contract.KIND) == contract.KIND and "spec" in document:
            assert page_fields.unknown_in_job({"spec": document["spec"]}) == []


def test_whole_manifests_are_among_them_and_a_wrong_one_is_told() -> None:
    every = [each for page in PAGES for each in documents(page) if isinstance(each, dict)]
    jobs = [each for each in every if each.get("kind") == contract.KIND]
    assert len(jobs) >= 4
    wrong = {**jobs[0], "spec": {**jobs[0]["spec"], "replicas": 0}}
    assert job_faults(wrong)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_what_is_said_to_be_run_is_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    markers = re.findall(r"^<!-- run by (\S+) -->$", text, flags=re.MULTILINE)
    taken = [fence.run_by for fence in fences(page) if fence.run_by]
    assert taken == markers, "a marker stands in the line before its block"
    for test in markers:
        source = (ROOT / test).read_text(encoding="utf-8")
        assert page.name in source, f"{test} does not read {named(page)}"


@pytest.mark.parametrize(
    "line",
    [
        "rtj inspekt out",
        "rtj inspect out --nope",
        "rtj run --nope --store file:///s --path out -- python train.py",
        "kubectl get rtjs",
        "kubectl gett rtj",
        "kubectl get rtj --nope",
        "kubectl get rtj gpt -o jsonpath='{.status.nope}'",
        """kubectl patch rtj gpt --type=merge -p '{"spec":{"suspended":true}}'""",
        """kubectl annotate rtj gpt 'resumable-training.dev/request={"id":"1","action":"go"}'""",
        "kubectl logs pod -c sidecar",
        "kubectl logs -l resumable-training.dev/jobs=gpt",
        "helm install rtj charts/nope",
        "helm install rtj charts/resumable-training-operator --set image.nope=1",
        "helm instal rtj charts/resumable-training-operator",
        "make nope",
        "docker build --target nope .",
        "pip install '.[nope]'",
        "python -m devcluster upp",
        "python benchmarks/transfer.py --nope 1",
        "pytest tests/nope",
        "curl localhost:8080/nope",
        "if true; then srun x; fi",
        "echo a && nope b | kubectl gett pods",
    ],
)
def test_a_wrong_command_is_found(line: str) -> None:
    commands = shell_lines.read(line).commands
    assert [problem for words in commands for problem in page_commands.problems(words)]


def test_a_wrong_field_is_found() -> None:
    assert page_fields.unknown_in_job({"spec": {"checkpoint": {"paths": "/c"}}})
    assert page_fields.unknown_in_job({"status": {"nope": 1}})
    assert not page_fields.unknown_in_job({"spec": {"template": {"spec": {"anything": 1}}}})
