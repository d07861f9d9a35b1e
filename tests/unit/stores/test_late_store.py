"""A store that is loaded in the background: known at once, waited for when it is asked."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from rtj_api.reasons import Reason
from rtj_sidecar.stores.base import Store, StoreProblem, Written
from rtj_sidecar.stores.file import FileStore
from rtj_sidecar.stores.late import late_store
from rtj_sidecar.stores.open import open_store


def test_it_is_named_before_it_is_there_and_serves_when_it_is(tmp_path: Path) -> None:
    loaded = threading.Event()

    def make() -> Store:
        assert loaded.wait(60)
        return FileStore(tmp_path)

    store = late_store("file:///x", make)
    assert store.url == "file:///x"
    answers: list[object] = []
    caller = threading.Thread(target=lambda: answers.append(store.put("a", b"1")))
    caller.start()
    assert not answers
    loaded.set()
    caller.join(60)
    assert isinstance(answers[0], Written)
    found = store.get("a")
    assert found is not None
    assert found.data == b"1"


def test_why_it_could_not_be_made_is_said_by_each_call() -> None:
    def make() -> Store:
        raise StoreProblem(Reason.INVALID_SPEC, "no such endpoint")

    store = late_store("s3://b", make)
    for _ in range(2):
        with pytest.raises(StoreProblem, match="no such endpoint"):
            store.get("a")


def test_s3_is_named_alike_late_or_not() -> None:
    told = {"endpoint": "http://127.0.0.1:9", "region": "r"}
    for url in ("s3://b", "s3://b/p", "s3://b/p/"):
        assert open_store(url, late=True, **told).url == open_store(url, **told).url
