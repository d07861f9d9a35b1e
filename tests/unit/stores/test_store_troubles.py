"""What a user gets wrong, and what a store in trouble must not look like."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from kit.s3 import S3Server
from kit.stored import problem
from rtj_api.reasons import Reason
from rtj_sidecar.stores.base import StoreProblem
from rtj_sidecar.stores.open import open_store


def test_what_a_user_gets_wrong(credentials: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = credentials.endpoint
    absent = open_store("s3://nowhere/x", endpoint=endpoint)
    for call in (
        lambda: absent.put("a", b""),
        lambda: absent.get("a"),
        lambda: list(absent.list("")),
    ):
        found = problem(call)
        assert (found.reason, found.transient) == (Reason.BUCKET_MISSING, False)
        assert "nowhere" in found.message

    closed = open_store("s3://b", endpoint="http://127.0.0.1:9", patience_s=0.5)
    found = problem(lambda: closed.get("a"))
    assert (found.reason, found.transient) == (Reason.STORE_UNREACHABLE, True)
    assert "checkpoint.store.endpoint" in found.message

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    stranger = open_store(credentials.url(), endpoint=endpoint)
    found = problem(lambda: stranger.put("a", b""))
    assert (found.reason, found.transient) == (Reason.CREDENTIALS_REFUSED, False)
    assert "credentialsSecret" in found.message
    assert "a-wrong-secret" not in found.message
    assert credentials.access_key not in found.message

    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    found = problem(lambda: open_store(credentials.url(), endpoint=endpoint).get("a"))
    assert found.reason in (Reason.CREDENTIALS_MISSING, Reason.CREDENTIALS_REFUSED)


@pytest.mark.parametrize(
    ("url", "reason", "says"),
    [
        ("ftp://x/y", Reason.STORE_SCHEME_UNKNOWN, "s3://, file://, gs://, az://, hdfs://"),
        ("checkpoints", Reason.STORE_SCHEME_UNKNOWN, "s3://, file://"),
        ("file://relative/path", Reason.INVALID_SPEC, "three slashes"),
        ("s3:///prefix", Reason.INVALID_SPEC, "s3://bucket/prefix"),
        ("s3://key:secret@bucket/x", Reason.INVALID_SPEC, "credentialsSecret"),
    ],
)
def test_an_url_that_cannot_be_a_store(url: str, reason: Reason, says: str) -> None:
    found = problem(lambda: open_store(url))
    assert found.reason == reason
    assert says in found.message
    assert "key:secret" not in found.message


def test_a_store_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    found = problem(lambda: open_store((tmp_path / "f").as_uri()).put("a", b""))
    assert found.reason == Reason.STORE_UNREACHABLE
    assert "volume" in found.message


def test_a_file_in_the_place_of_the_store_is_trouble_and_not_emptiness(tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.write_text("in the way")
    store = open_store(f"file://{place}")
    for ask in (lambda: store.get("a/b"), lambda: store.head("a/b")):
        with pytest.raises(StoreProblem):
            ask()


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_directory_that_cannot_be_read_is_trouble_and_not_emptiness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = open_store(tmp_path.as_uri())
    store.put("run/fences/1.json", b"{}")
    sick = tmp_path / "run" / "fences"
    scandir = os.scandir

    def refuse(path: str) -> object:
        if Path(path) == sick:
            raise OSError(number, os.strerror(number), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for prefix in ("", "run/", "run/fences/"):
        found = problem(lambda prefix=prefix: list(store.list(prefix)))
        assert found.transient is (number != errno.EACCES)
    assert list(store.list("run/fences/none/")) == [], "gone meanwhile, or never made"


def test_what_a_file_system_recovers_for_itself_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path.as_uri())
    store.put("run/a", b"1")
    (tmp_path / "lost+found").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> object:
        if Path(path).name == "lost+found":
            raise PermissionError(errno.EACCES, "no", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert [found.key for found in store.list("")] == ["run/a"]
