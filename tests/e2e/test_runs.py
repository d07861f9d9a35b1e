"""One run and several jobs that want it: on one cluster, on two, and back to an older save."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from kit import images, manifests
from kit.fault_proxy import FaultProxy
from kit.kube import Kube, kube_of, wait_for
from kit.lanes import own
from kit.rtj import KIND, Job
from kit.s3_objects import list_keys, read_object
from kit.stack import Stack, credentials_secret, install

from devcluster import Cluster

SECOND = own("rtj-r")


def records(product: Stack, space: Kube, kind: str) -> list[dict]:
    """`fences` or `manifests` of the run of this namespace, oldest first."""
    keys = [k for k in list_keys(product.s3, prefix=f"{space.namespace}/") if f"/{kind}/" in k]
    found = [json.loads(read_object(product.s3, key=key)) for key in keys]
    return sorted(found, key=lambda record: (record["fence"], record.get("n", 0)))


def events(job: Job, reason: str) -> list[str]:
    return [event["message"] for event in job.events() if event["reason"] == reason]


def patched(job: Job, **checkpoint: str) -> None:
    body = json.dumps({"spec": {"checkpoint": checkpoint}})
    job.kube.run("patch", KIND, job.name, "--type=merge", "-p", body)


def wait_held(job: Job, reason: str) -> str:
    """The words of that hold, once the job is held for it."""
    status = job.wait_status(
        f"held: {reason}", lambda s: (s.get("hold") or {}).get("reason") == reason, within=240
    )
    return status["hold"]["message"]


def at_endpoint(endpoint: str) -> dict:
    return {"spec": {"checkpoint": {"store": {"endpoint": endpoint}}}}


def the_job(product: Stack, space: Kube, **more: object) -> dict:
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    return manifests.counter("gpt", store=store, replicas=1, save_every=5, **more)


@pytest.fixture
def second(product: Stack) -> Iterator[Callable[[], tuple[Kube, str]]]:
    """Another cluster with its own operator, one node, and the address under which it sees the
    same S3 server. Made while the test does other things."""
    cluster = Cluster(SECOND)
    ways = ExitStack()

    def make() -> tuple[Kube, str]:
        cluster.up(nodes=1, gpus=2)
        facts = cluster.status()
        operator, sidecar = images.build("operator"), images.build("sidecar")
        for image in (images.base_archive(), operator.archive, sidecar.archive):
            cluster.load(image)
        install(
            kubectl=facts["kubectl"],
            kubeconfig=facts["kubeconfig"],
            operator_image=operator.reference,
            sidecar_image=sidecar.reference,
        )
        # No cluster sees another's network: what it asks is passed on.
        proxy = FaultProxy(upstream=product.s3.endpoint, address=facts["hostAddress"])
        kube = kube_of(kubectl=facts["kubectl"], kubeconfig=facts["kubeconfig"])
        return kube, ways.enter_context(proxy).endpoint

    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(make)
        try:
            yield making.result
        finally:
            making.exception()  # a cluster that is half made cannot be taken down
            cluster.down()
            ways.close()


@pytest.mark.timeout(600)
def test_applied_again_it_waits_for_its_old_pod_and_goes_on(product: Stack, space: Kube) -> None:
    slow = ("--deaf",)  # its old pod still terminates while the new job is there
    space.apply(the_job(product, space, extra=slow, grace_seconds=8))
    job = Job(kube=space, name="gpt")
    job.wait_durable(10, within=240)
    first_uid, old_pod = job.get()["metadata"]["uid"], job.pod_name(0)

    # Deleted and applied again under the same name while its old pod still terminates.
    space.run("delete", KIND, "gpt", "--wait=false")
    wait_for(
        lambda: space.run("get", KIND, "gpt", "--ignore-not-found") == "", within=60, what="deleted"
    )
    assert "deletionTimestamp" in space.get("pod", old_pod)["metadata"]
    space.apply(the_job(product, space, extra=slow, grace_seconds=8, step_seconds=0.1))
    job.wait_status("waits for the old pod", lambda s: s.get("phase") == "Pending", within=30)
    assert not job.status().get("attempt")
    status = job.wait_phase("Running", within=180)
    assert not [p for p in space.list("pods") if p["metadata"]["name"] == old_pod]
    newest = max(
        m["step"] for m in records(product, space, "manifests") if m["jobUID"] == first_uid
    )
    assert status["resume"]["step"] == newest, "nothing that was durable is lost"
    assert status["attempt"] == 1, "no attempt was spent on the question whose run it is"
    (changed,) = events(job, "RunContinued")
    assert first_uid in changed
    assert "--step-seconds" in changed or "0.1" in changed


@pytest.mark.long  # as two jobs of one cluster: tests/unit/agent/test_agent_beginnings.py
@pytest.mark.timeout(900)
def test_a_second_clusters_twin_harms_nobody_and_is_told_what_to_do(
    product: Stack, space: Kube, second: Callable[[], tuple[Kube, str]]
) -> None:
    # Slow to end: a pod that is gone at once does not always hear the last word, and then only a
    # person can say that its job has ended.
    manifest = the_job(product, space, extra=("--deaf",), grace_seconds=8, step_seconds=0.1)
    space.apply(manifest)
    job = Job(kube=space, name="gpt")
    job.wait_durable(10, within=240)
    owner = job.get()["metadata"]["uid"]

    # 1. The same manifest on a second cluster: the first trains on, the second says what to do.
    cluster, endpoint = second()
    there = cluster.make_namespace(space.namespace)
    there.apply(credentials_secret(product.s3), *manifests.claims(space.namespace))
    there.apply(manifests.overlaid(manifest, at_endpoint(endpoint)))
    twin = Job(kube=there, name="gpt")
    words = wait_held(twin, "RunInUse")
    for word in (f"{space.namespace}/gpt", f"takeOver: {owner}", "runID", "may still write"):
        assert word in words
    fences = len(records(product, space, "fences"))
    status = job.status()
    job.wait_durable(status["checkpoint"]["lastDurableStep"] + 20)
    assert (job.status()["attempt"], job.status()["phase"]) == (1, "Running")
    assert len(records(product, space, "fences")) == fences, "the twin touched nothing"

    # 2. A person takes it over by name although the owner lives: the owner ends, with words.
    patched(twin, takeOver=owner)
    taken = twin.wait_phase("Running", within=180)
    assert events(twin, "RunTakenOver")
    assert "was taken over by" in wait_held(job, "RunInUse")
    mine = [m for m in records(product, space, "manifests") if m["jobUID"] == owner]
    assert taken["resume"]["step"] in {m["step"] for m in mine}
    twin.wait_durable(taken["resume"]["step"] + 10)

    # 3. The twin is deleted: its last word frees the run, and the first goes on by itself.
    there.run("delete", KIND, "gpt", "--wait=false")
    back = job.wait_phase("Running", within=180)
    assert back["resume"]["step"] > taken["resume"]["step"]
    outcomes = [fence.get("outcome") for fence in records(product, space, "fences")]
    assert "released" in outcomes


@pytest.mark.timeout(600)
def test_back_to_any_save_by_name_and_on_from_a_finished_run(product: Stack, space: Kube) -> None:
    space.apply(the_job(product, space, steps=10_000, step_seconds=0.1))
    job = Job(kube=space, name="gpt")
    job.wait_durable(25, within=240)
    old, middle, *_ = (m["name"] for m in records(product, space, "manifests"))

    # By the spec, on a running job; once.
    patched(job, resumeFrom=old)
    status = job.wait_status(
        "goes on from the named save",
        lambda s: s["phase"] == "Running" and s["resume"]["name"] == old,
        within=120,
    )
    attempt = status["attempt"]
    job.wait_durable(15)
    job.kill_trainer(0)
    status = job.wait_status(
        "restarted", lambda s: s["phase"] == "Running" and s["attempt"] > attempt, within=120
    )
    assert status["resume"]["step"] >= 15, "the value has acted and acts no more"

    # By request, onto the branch that was left; unreadable and unknown ones are answered.
    job.request(id="1", action="fly")
    refused = job.wait_status("an answer", lambda s: s.get("lastRequest"), within=60)
    assert "allow-scratch, restart, resume-from, take-over" in refused["lastRequest"]["result"]
    assert events(job, "RequestRefused")
    job.request(id="1", action="resume-from", save=middle)
    status = job.wait_status(
        "goes on from the branch",
        lambda s: s["phase"] == "Running" and s["resume"]["name"] == middle,
        within=120,
    )
    assert status["lastRequest"]["result"] == f"goes on from {middle}"
    job.wait_durable(status["resume"]["step"] + 5)

    # The same job, finished, applied again: held with words; Fresh begins beside its saves.
    job.delete()
    wait_for(lambda: not space.list("pods"), within=120, what="its pods gone")
    done = the_job(product, space, steps=20, checkpoint={"resumeFrom": old})
    space.apply(done)
    status = job.wait_phase("Succeeded", within=180)
    assert status["attempts"][0]["fromStep"] > 10, "applied anew, the value does not act again"
    job.delete()
    wait_for(lambda: not space.list("pods"), within=120, what="its pods gone")
    space.apply(done)
    assert "onExistingRun: Fresh" in wait_held(job, "RunAlreadyComplete")
    before = {m["name"] for m in records(product, space, "manifests")}
    job.kube.run(
        *("patch", KIND, "gpt", "--type=json", "-p"),
        '[{"op": "remove", "path": "/spec/checkpoint/resumeFrom"},'
        ' {"op": "add", "path": "/spec/checkpoint/onExistingRun", "value": "Fresh"}]',
    )
    status = job.wait_phase("Succeeded", within=180)
    assert status["resume"]["scratch"] is True
    assert before < {m["name"] for m in records(product, space, "manifests")}
