"""A credential of the store is told nowhere: real agents, a real S3 server, and keys that can be
recognized in whatever form they are written."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from kit.alone import begin, newest
from kit.leaks import Place, forms, in_bucket, in_directory, leaks
from kit.orders import gone, prepared
from kit.podlike import PodLike, trainer_command
from kit.s3 import S3Server
from rtj_api import contract
from rtj_api.reasons import Reason
from rtj_api.wire import Report

# Characters that every form writes otherwise than plain.
RIGHT = f"MARK/right+{secrets.token_hex(12)}=="
WRONG = f"MARK/wrong+{secrets.token_hex(12)}=="
BROKEN = f"MARK/token+{secrets.token_hex(12)}=="
KEY = f"MARKID{secrets.token_hex(7).upper()}"
ALL = {"secret": RIGHT, "wrong secret": WRONG, "broken token": BROKEN, "key ID": KEY}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server(access_key=KEY, secret_key=RIGHT) as server:
        yield server


@pytest.fixture
def pods() -> Iterator[list[PodLike]]:
    made: list[PodLike] = []
    yield made
    for pod in made:
        pod.end()


def told(pod: PodLike) -> Iterator[Place]:
    for path in (contract.PATH_STATUS, contract.PATH_METRICS):
        yield f"{path} of {pod.uid}", pod.page(path)


def troubles(report: Report) -> dict[Reason, str]:
    return {each.reason: each.message for each in (report.problem, *report.degraded) if each}


def test_no_credential_is_told_anywhere(pods: list[PodLike], s3: S3Server, tmp_path: Path) -> None:
    """A save, a restore in a new pod, a secret that becomes wrong, a token pasted with a line
    break in it (its text is in the exception that http.client raises)."""
    secret, work = tmp_path / "secret", tmp_path / "pods"
    secret.mkdir()
    (secret / "AWS_ACCESS_KEY_ID").write_text(KEY)
    (secret / "AWS_SECRET_ACCESS_KEY").write_text(RIGHT)
    options = {
        "store": s3.url("leaks"),
        "store_endpoint": s3.endpoint,
        "store_region": "us-east-1",
        "store_credentials_dir": str(secret),
        "command": lambda path: trainer_command(path, steps=100_000),
    }
    seen: list[Place] = []

    first = begin(pods, work, **options)
    prepared(first, 1)
    gone(first, 1)
    first.until(lambda r: (r.checkpoint.last_durable_step or 0) >= 10)
    seen += told(first)
    first.end()

    second = begin(pods, work, made_in=2, **options)
    best = newest(prepared(second, 2))
    assert gone(second, 2, best).checkpoint.restore_total_bytes > 0
    seen += told(second)

    (secret / "AWS_SECRET_ACCESS_KEY").write_text(WRONG)
    second.until(lambda r: Reason.CREDENTIALS_REFUSED in troubles(r))
    seen += told(second)
    (secret / "AWS_SESSION_TOKEN").write_text(f"{BROKEN}\nrest")
    second.until(lambda r: any("line break" in text for text in troubles(r).values()))
    seen += told(second)
    second.end()

    files, objects = list(in_directory(work)), list(in_bucket(s3))
    looked_at = " ".join(place for place, _ in (*files, *objects))
    for part in ("agent.log", "journal", "/manifests/", "/fences/"):
        assert part in looked_at, f"{part} was not looked at"
    assert leaks((*seen, *files, *objects), ALL) == []

    # The same search where they are known to stand.
    assert {each.split(", ")[0] for each in leaks(in_directory(secret), ALL)} == {
        "wrong secret",
        "broken token",
        "key ID",
    }
    body = b"?x=" + quote(RIGHT, safe="").encode() + base64.b64encode(f"a:{WRONG}!".encode())
    s3.client().put_object(Bucket=s3.bucket, Key="planted", Body=body)
    found = {(each.split(", ")[0], each.split(": ")[-1]) for each in leaks(in_bucket(s3), ALL)}
    assert found == {("secret", "object planted"), ("wrong secret", "object planted")}


@pytest.mark.parametrize("before", range(7))
def test_the_search_finds_each_form(before: int) -> None:
    text = "x" * before + RIGHT + "y"
    written = {
        "plain": text,
        "url": quote(text, safe=""),
        "hex": text.encode().hex(),
        "base64": base64.b64encode(text.encode()).decode(),
        "base64, for URLs": base64.urlsafe_b64encode(text.encode()).decode(),
    }
    for form, content in written.items():
        assert leaks([("here", content.encode())], {"s": RIGHT}), form
        assert not leaks([("here", content.encode())], {"s": WRONG}), form
    assert min(map(len, forms(KEY).values())) >= 20, "too short to be found by chance alone"
