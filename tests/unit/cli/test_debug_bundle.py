"""A bundle explains a job and holds no secret: planted ones are looked for in every byte."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.scenarios import SCENARIOS
from kit.stub_kubectl import StubKubectl, job_of
from rtj_api import contract
from rtj_api.version import RELEASE
from rtj_cli.redacting import GONE, object_without, text_without
from rtj_cli.skew import parts, warning

Rtj = Callable[..., Any]
PLANTED = {
    "plain env": "correct-horse-battery",
    "json config": "hunter2-in-the-config",
    "aws id": "AKIAIOSFODNN7EXAMPLE",
    "aws key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "token": "hf_abcdefghijklmnopqrstuvwx",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJl",
    "url": "carol:s3cr3t-pass",
    "flag": "flagged-value-42",
    "flag=": "flagged-value-43",
    "annotation": "annotated-value-44",
    "pem": "MIIEowIBAAKCAQEAxyz",
    "header": "Zm9vOmJhcg==header",
}


def planted_pod() -> dict[str, Any]:
    env = [
        {"name": "WANDB_API_KEY", "value": PLANTED["plain env"]},
        {"name": contract.ENV_CONFIG, "value": json.dumps({"x": PLANTED["json config"]})},
        {"name": "INNOCENT", "value": PLANTED["token"]},
        {"name": "RTJ_RANK", "value": "0"},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s3-keys", "key": "id"}}},
    ]
    command = ["train", "--api-key", PLANTED["flag"], f"--token={PLANTED['flag=']}", "--lr", "3e-4"]
    return {
        "metadata": {
            "name": "gpt-0-1-abcd",
            "labels": {contract.LABEL_RANK: "0"},
            "annotations": {
                "team/password": PLANTED["annotation"],
                "kubectl.kubernetes.io/last-applied-configuration": PLANTED["plain env"],
            },
        },
        "spec": {"containers": [{"name": "trainer", "env": env, "command": command}]},
        "status": {"containerStatuses": [{"name": "trainer", "restartCount": 1}]},
    }


LOG = "\n".join(
    [
        f"AWS_ACCESS_KEY_ID={PLANTED['aws id']}",
        f"aws_secret_access_key: {PLANTED['aws key']}",
        f"loading from https://{PLANTED['url']}@host/x",
        f"Authorization: Bearer {PLANTED['jwt']}",
        f"authorization: Basic {PLANTED['header']}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{PLANTED['pem']}\n-----END RSA PRIVATE KEY-----",
        "step 12 loss 0.31 tokens: 4096 tokens_per_second=912",
    ]
)


def test_no_planted_secret_is_in_any_byte(rtj: Rtj, cluster: StubKubectl, tmp_path: Path) -> None:
    raw = job_of(SCENARIOS["crash_in_place"].run().world.state)
    raw["spec"]["checkpoint"]["store"]["credentialsSecret"] = "s3-keys"
    raw["spec"]["template"] = {"spec": planted_pod()["spec"]}
    raw["metadata"]["annotations"] = planted_pod()["metadata"]["annotations"]
    cluster.job(raw)
    cluster.pods(planted_pod())
    cluster.log("gpt-0-1-abcd", LOG)
    to = tmp_path / "bundle.tar.gz"
    rtj("debug-bundle", "gpt", "--to", to)
    assert to.stat().st_mode & 0o077 == 0
    with tarfile.open(to) as archive:
        texts = {
            entry.name.removeprefix("gpt-debug/"): archive.extractfile(entry).read().decode()  # type: ignore[union-attr]
            for entry in archive.getmembers()
        }
    whole = "\n".join(texts.values())
    for what, secret in PLANTED.items():
        assert secret not in whole, what
    assert not (cluster.directory / "secrets").exists(), "a Secret was asked for"
    assert set(texts) >= {
        "job.yaml",
        "why.txt",
        "describe.txt",
        "timeline.json",
        "events.json",
        "versions.json",
        "MISSING.txt",
        "pods/gpt-0-1-abcd.yaml",
        "logs/gpt-0-1-abcd.trainer.log",
        "logs/gpt-0-1-abcd.trainer.previous.log",
    }
    log = texts["logs/gpt-0-1-abcd.trainer.log"]
    assert "step 12 loss 0.31 tokens: 4096 tokens_per_second=912" in log
    pod = texts["pods/gpt-0-1-abcd.yaml"]
    for kept in ("name: WANDB_API_KEY", "value: '0'", "name: s3-keys", "- 3e-4"):
        assert kept in pod, kept
    assert "credentialsSecret: s3-keys" in texts["job.yaml"]
    assert RELEASE in texts["versions.json"]
    assert "version of the CRD" in texts["MISSING.txt"]


def test_secrets_and_config_maps_lose_their_data() -> None:
    for kind in ("Secret", "ConfigMap"):
        raw = {
            "kind": kind,
            "metadata": {"name": "x"},
            "data": {"a": "b"},
            "stringData": {"c": "d"},
        }
        assert object_without(raw) == {"kind": kind, "metadata": {"name": "x"}, "data": GONE}


@pytest.mark.parametrize(
    "text",
    [
        "step 3 loss 0.5",
        "credentialsSecret: s3-keys",
        "tokens=4096",
        "rank 1 on node-b, exit code 137",
        "use_auth_token=True token: null",
        "https://host:8080/path@v1",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert text_without(text) == text


@given(
    st.text(
        alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"',;&}]"),
        min_size=7,
        max_size=60,
    )
)
def test_what_is_assigned_to_a_password_goes(secret: str) -> None:
    for head in ("PASSWORD=", "db_password: ", '"client_secret": "', "api-key = "):
        tail = '"' if head.endswith('"') else ""
        found = text_without(f"{head}{secret}{tail} next")
        assert secret not in found


@pytest.mark.parametrize(
    ("own", "other", "warns"),
    [
        ("0.1.0", "0.2.3", False),
        ("0.1.0", "0.3.0", True),
        ("1.0.0", "0.9.0", True),
        ("0.4.0", "0.1.0-rc.1", True),
        ("0.1.0", "dev", False),
        ("dev", "0.9.0", False),
    ],
)
def test_version_skew(own: str, other: str, warns: bool) -> None:
    told = warning(own, {"the operator": other})
    assert (told is not None) is warns
    if told is not None:
        older = "the operator" if parts(other) < parts(own) else "rtj"  # type: ignore[operator]
        assert told.endswith(f"update {older}")


def test_an_old_sidecar_is_warned_of(rtj: Rtj, cluster: StubKubectl) -> None:
    cluster.job(job_of(SCENARIOS["first_start"].run().world.state))
    image = {"name": contract.CONTAINER_SIDECAR, "image": "registry:5000/sidecar:v9.4.1@sha256:ab"}
    cluster.pods({"metadata": {"name": "gpt-0", "labels": {}}, "spec": {"initContainers": [image]}})
    assert "sidecar is v9.4.1" in rtj("why", "gpt").words


def test_version_says_what_it_may_not_read(rtj: Rtj, cluster: StubKubectl) -> None:
    said = rtj("version", "-o", "json")
    assert {row["name"]: row["version"] for row in json.loads(said.out)}["rtj"] == RELEASE
    assert "version of the operator" in said.words
    assert rtj("version", "--client", "-o", "name").out == "rtj\ncontract\n"
