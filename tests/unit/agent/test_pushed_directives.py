"""Directives that come by HTTP: believed when the annotation's key has signed them, else not."""

from __future__ import annotations

import base64
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kit.podlike import PodLike, make_pod
from rtj_api import contract
from rtj_api.wire import SEQ, Directive, Phase, Resume, SidecarPhase
from rtj_sidecar.directives import signed

KEY, STRANGER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()


def public(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def signature(key: Ed25519PrivateKey, body: bytes) -> str:
    return base64.b64encode(key.sign(contract.SIGNED_PREFIX + body)).decode()


def directive(phase: Phase, *, pod: str = "p", job: str = "j", key: str | None = None) -> Directive:
    return Directive(
        job_uid=job,
        pod_uid=pod,
        rank=0,
        attempt=1,
        seq=SEQ[phase],
        phase=phase,
        world_size=1,
        coordinator="127.0.0.1",
        resume=None if phase is Phase.PREPARE else Resume(scratch=True),
        push_key=key,
    )


ANNOTATED = directive(Phase.PREPARE, key=public(KEY))
BODY = directive(Phase.GO).dump_json().encode()


def test_what_the_annotations_key_signed_is_believed() -> None:
    assert signed(BODY, signature=signature(KEY, BODY), by=ANNOTATED).phase is Phase.GO


@pytest.mark.parametrize(
    ("body", "mark", "by"),
    [
        (BODY, signature(STRANGER, BODY), ANNOTATED),
        (BODY + b" ", signature(KEY, BODY), ANNOTATED),
        (BODY, "", ANNOTATED),
        (BODY, "no base64!", ANNOTATED),
        (BODY, base64.b64encode(KEY.sign(BODY)).decode(), ANNOTATED),  # of another protocol
        (BODY, signature(KEY, BODY), None),
        (BODY, signature(KEY, BODY), directive(Phase.PREPARE)),
        (BODY, signature(KEY, BODY), directive(Phase.PREPARE, key="AAAA")),
    ],
    ids=[
        "a stranger's key",
        "other words",
        "no signature",
        "no base64",
        "another protocol",
        "no annotation yet",
        "an annotation without a key",
        "a broken key",
    ],
)
def test_nothing_else_is(body: bytes, mark: str, by: Directive | None) -> None:
    with pytest.raises(PermissionError):
        signed(body, signature=mark, by=by)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[PodLike]:
    made = make_pod(tmp_path, store=tmp_path / "store")
    yield made.start()
    made.end()


def annotate(pod: PodLike, text: str) -> None:
    place = pod.root / "podinfo"
    (place / "directive.tmp").write_text(text)
    os.rename(place / "directive.tmp", place / "directive")


def post(pod: PodLike, told: Directive, *, key: Ed25519PrivateKey) -> int:
    body = told.dump_json().encode()
    request = urllib.request.Request(
        pod.url + contract.PATH_DIRECTIVE,
        data=body,
        headers={contract.HEADER_SIGNATURE: signature(key, body)},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_pod_is_led_by_pushed_directives_but_by_no_stranger(pod: PodLike) -> None:
    facts = {"pod": pod.uid, "job": pod.config.job_uid}
    prepare = directive(Phase.PREPARE, key=public(KEY), **facts)
    assert post(pod, prepare, key=KEY) == 403, "no annotation has named the key yet"
    annotate(pod, prepare.dump_json())
    pod.until_phase(SidecarPhase.PREPARED, 1)
    restore = directive(Phase.RESTORE, key=public(STRANGER), **facts)
    assert post(pod, restore, key=STRANGER) == 403
    assert pod.report().seq == SEQ[Phase.PREPARE]
    # A pushed directive names a key like any other, and that one counts for nothing.
    assert post(pod, restore, key=KEY) == 204
    pod.until_phase(SidecarPhase.RESTORED, 1)
    go = directive(Phase.GO, **facts)
    assert post(pod, go, key=STRANGER) == 403
    assert post(pod, directive(Phase.GO, pod="another", job=facts["job"]), key=KEY) == 204
    assert pod.report().phase is SidecarPhase.RESTORED, "it was meant for another pod"
    assert post(pod, go, key=KEY) == 204
    begun = pod.until(lambda report: report.trainer.attempt == 1).trainer
    # The kubelet brings the same words later: nothing happens twice.
    annotate(pod, go.model_copy(update={"push_key": public(KEY)}).dump_json())
    assert post(pod, go, key=KEY) == 204
    assert pod.report().trainer.started_at == begun.started_at
