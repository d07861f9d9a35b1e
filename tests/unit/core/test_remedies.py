"""A problem of the store names the field of this job, and the object in it, to change."""

from __future__ import annotations

import pytest
from rtj_api.reasons import Reason
from rtj_api.wire import Problem
from rtj_operator.core.observed import JobSpec
from rtj_operator.core.remedies import worded

SPEC = JobSpec(
    replicas=1,
    run_id="ns/gpt",
    template_hash="h",
    store_url="s3://bucket/x",
    store_endpoint="http://s3:8333",
    credentials_secret="s3-credentials",
)


@pytest.mark.parametrize(
    ("reason", "place"),
    [
        (Reason.CREDENTIALS_REFUSED, 'spec.checkpoint.store.credentialsSecret "s3-credentials"'),
        (Reason.CREDENTIALS_MISSING, 'spec.checkpoint.store.credentialsSecret "s3-credentials"'),
        (Reason.BUCKET_MISSING, 'spec.checkpoint.store.url "s3://bucket/x"'),
        (Reason.STORE_UNREACHABLE, 'spec.checkpoint.store.endpoint "http://s3:8333"'),
    ],
)
def test_named(reason: Reason, place: str) -> None:
    text = worded(Problem(reason=reason, message="it failed.", since=0.0), SPEC)
    assert text == f"it failed (see {place})"


def test_without_a_secret_the_field_is_named_as_unset() -> None:
    spec = JobSpec(replicas=1, run_id="r", template_hash="h", store_url="s3://b")
    text = worded(Problem(reason=Reason.CREDENTIALS_MISSING, message="none", since=0.0), spec)
    assert "credentialsSecret, which is not set" in text


@pytest.mark.parametrize("reason", [Reason.DISK_FULL, Reason.FENCE_TAKEN, "SomethingNewer"])
def test_what_the_store_has_no_part_in_is_left_as_it_is(reason: str) -> None:
    problem = Problem(reason=reason, message="as told.", since=0.0)
    assert worded(problem, SPEC) == "as told."
    assert worded(problem, None) == "as told."
