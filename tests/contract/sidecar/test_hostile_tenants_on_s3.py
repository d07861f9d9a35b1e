"""A tenant that names another's run in the same bucket: the store's own rules keep it out, and the
sidecar has no other credentials than its job's. Real agents, a real S3 server, two keys that are
each good for one prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.alone import begin
from kit.leaks import in_bucket
from kit.log_records import unknown_fields
from kit.orders import prepared
from kit.podlike import PodLike
from kit.run_writer import begun, one_save, run_of
from kit.s3 import S3Server, Tenant
from rtj_api.reasons import Reason
from rtj_api.wire import Phase, Report, Wanted
from rtj_sidecar.stores.s3 import S3Store

A = Tenant("KEYOFTEAMA", "secret-of-team-a", "checkpoints/team-a/*")
B = Tenant("KEYOFTEAMB", "secret-of-team-b", "checkpoints/team-b/*")
STEP = 3

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """With a run of team A in it."""
    with S3Server(tenants=(A, B)) as server:
        keys = secret_of(A, tmp_path_factory.mktemp("a"))
        store = S3Store(
            bucket=server.bucket, prefix="team-a", endpoint=server.endpoint, credentials_dir=keys
        )
        run = run_of(store)
        begun(run)
        for n in range(1, STEP + 1):
            one_save(run, n, tmp_path_factory.mktemp("saves"), files=2)
        yield server


@pytest.fixture
def pods() -> Iterator[list[PodLike]]:
    made: list[PodLike] = []
    yield made
    for pod in made:
        pod.end()


@pytest.fixture
def untouched(s3: S3Server) -> Iterator[None]:
    """What is team A's is byte for byte the same afterwards."""

    def theirs() -> list[tuple[str, bytes]]:
        return [(place, data) for place, data in in_bucket(s3) if " team-a/" in place]

    before = theirs()
    assert before
    yield
    assert theirs() == before


def secret_of(tenant: Tenant, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "AWS_ACCESS_KEY_ID").write_text(tenant.access_key)
    (directory / "AWS_SECRET_ACCESS_KEY").write_text(tenant.secret_key)
    return directory


def pod_of(
    tenant: Tenant, pods: list[PodLike], tmp_path: Path, s3: S3Server, *, store: str
) -> PodLike:
    return begin(
        pods,
        tmp_path,
        job_uid="job-of-b",
        store=s3.url(store),
        store_endpoint=s3.endpoint,
        store_region="us-east-1",
        store_credentials_dir=str(secret_of(tenant, tmp_path / "secret")),
    )


def is_refused(report: Report) -> bool:
    told = [each for each in (report.problem, *report.degraded) if each is not None]
    return any(each.reason == Reason.CREDENTIALS_REFUSED for each in told)


def test_the_run_of_another_team_is_neither_read_nor_claimed(
    pods: list[PodLike], tmp_path: Path, s3: S3Server, untouched: None
) -> None:
    """The same place and runID as theirs; the operator, or a person, has let it claim."""
    pod = pod_of(B, pods, tmp_path, s3, store="team-a")
    pod.direct(Phase.PREPARE, 1, may_claim=True)
    report = pod.until(is_refused)
    assert (report.fence, report.candidates, report.holder) == (None, [], None)


def test_a_save_of_another_team_is_not_resumed_from(
    pods: list[PodLike], tmp_path: Path, s3: S3Server, untouched: None
) -> None:
    pod = pod_of(B, pods, tmp_path, s3, store="team-b")
    value = s3.url("team-a/ns/gpt")
    pod.direct(Phase.PREPARE, 1, wanted=Wanted(value=value, asked="spec"))
    report = pod.until(lambda r: is_refused(r) or r.found is not None)
    assert report.found is None or (report.found.save is None and report.found.problem)
    assert report.candidates == []


def test_their_own_key_reads_it(pods: list[PodLike], tmp_path: Path, s3: S3Server) -> None:
    """The twin of the two above: nothing but the key keeps team B out."""
    run = run_of(
        S3Store(
            bucket=s3.bucket,
            prefix="team-a",
            endpoint=s3.endpoint,
            credentials_dir=secret_of(A, tmp_path / "secret"),
        )
    )
    found = run.candidates(run.history())
    assert [each.step for each in found] == [3, 2, 1]
    pod = pod_of(A, pods, tmp_path, s3, store="team-a")
    assert prepared(pod, 1, may_claim=True).candidates
    assert {name for text in pod.log().splitlines() for name in unknown_fields(text)} == set()


@pytest.mark.parametrize("run_id", ["../team-a/ns/gpt", "x/../../team-a/ns/gpt", "..", "/team-a"])
def test_no_name_of_a_run_leads_out_of_its_prefix(
    tmp_path: Path, s3: S3Server, run_id: str, untouched: None
) -> None:
    """Whatever the key may do, and had the API server let such a name through."""
    store = S3Store(
        bucket=s3.bucket,
        prefix="team-b",
        endpoint=s3.endpoint,
        credentials_dir=secret_of(A, tmp_path / "secret"),
    )
    with pytest.raises(ValueError, match="key"):
        run_of(store, run_id=run_id).claim(attempt=1, world_size=1)
