"""Bad input ends in a condition with a reason and a remedy, within seconds, and heals by itself."""

from __future__ import annotations

import pytest
from kit import manifests
from kit.kube import Kube, KubectlError
from kit.manifests import overlaid, trainer_of
from kit.rtj import Job
from kit.stack import SECRET, Stack, credentials_secret


def counter(product: Stack, space: Kube, name: str, **more):
    store = manifests.store(endpoint=product.s3.endpoint, prefix=space.namespace)
    return manifests.counter(name, store=store, **({"replicas": 1} | more))


def reasons(status: dict) -> set[str]:
    return {c["reason"] for c in status.get("conditions", [])}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("no command", "command"),
        ("two containers, none named trainer", "trainer"),
        ("unknown scheme", "s3://"),
    ],
)
def test_refused_at_apply_with_the_remedy(
    product: Stack, space: Kube, change: str, words: str
) -> None:
    manifest = counter(product, space, "bad")
    if change == "no command":
        del trainer_of(manifest)["command"]
    elif change.startswith("two containers"):
        pod = manifest["spec"]["template"]["spec"]
        pod["containers"][0]["name"] = "a"
        pod["containers"].append({"name": "b", "image": manifests.IMAGE, "command": ["true"]})
    else:
        manifest["spec"]["checkpoint"]["store"]["url"] = "ftp://somewhere/else"
    with pytest.raises(KubectlError, match=words):
        space.apply(manifest)


def test_read_only_mount_is_named_in_a_condition(product: Stack, space: Kube) -> None:
    manifest = counter(product, space, "ro")
    trainer_of(manifest)["volumeMounts"].append(
        {"name": "data", "mountPath": "/checkpoints", "readOnly": True}
    )
    manifest["spec"]["template"]["spec"]["volumes"].append({"name": "data", "emptyDir": {}})
    space.apply(manifest)
    job = Job(kube=space, name="ro")
    status = job.wait_status("refused", lambda s: "PathNotWritable" in reasons(s), within=30)
    accepted = next(c for c in status["conditions"] if c["type"] == "Accepted")
    assert accepted["status"] == "False"
    assert "readOnly" in accepted["message"]
    assert not job.pods()


def test_name_too_long_for_a_hostname(product: Stack, space: Kube) -> None:
    name = "x" * 60
    with pytest.raises(KubectlError, match="name"):
        space.apply(counter(product, space, name))


def test_wrong_credentials_say_so_and_heal(product: Stack, space: Kube) -> None:
    wrong = overlaid(credentials_secret(product.s3), {"data": {"AWS_SECRET_ACCESS_KEY": "bm8="}})
    space.apply(wrong)
    space.apply(counter(product, space, "creds"))
    job = Job(kube=space, name="creds")
    status = job.wait_status(
        "credentials refused",
        lambda s: "CredentialsRefused" in str(s.get("conditions")) + str(s.get("hold")),
        within=120,
    )
    assert status["starts"] == 0
    assert SECRET in str(status)
    space.apply(credentials_secret(product.s3))
    job.wait_phase("Running", within=240)


def test_missing_bucket_says_so_and_heals(product: Stack, space: Kube) -> None:
    bucket = f"late-{space.namespace}"[:60].rstrip("-")
    manifest = counter(product, space, "bucket")
    manifest["spec"]["checkpoint"]["store"]["url"] = f"s3://{bucket}/x"
    space.apply(manifest)
    job = Job(kube=space, name="bucket")
    job.wait_status(
        "bucket missing",
        lambda s: "BucketMissing" in str(s.get("conditions")) + str(s.get("hold")),
        within=120,
    )
    product.s3.client().create_bucket(Bucket=bucket)
    job.wait_phase("Running", within=240)


def test_unreachable_endpoint_says_so(product: Stack, space: Kube) -> None:
    manifest = counter(product, space, "far")
    manifest["spec"]["checkpoint"]["store"]["endpoint"] = f"http://{product.host_address}:9"
    space.apply(manifest)
    job = Job(kube=space, name="far")
    status = job.wait_status(
        "store unreachable",
        lambda s: "StoreUnreachable" in str(s.get("conditions")) + str(s.get("hold")),
        within=120,
    )
    assert status["starts"] == 0


def test_image_that_cannot_be_pulled_says_so_and_heals(product: Stack, space: Kube) -> None:
    manifest = counter(product, space, "image")
    trainer_of(manifest)["image"] = "localhost/not-there:1"
    space.apply(manifest)
    job = Job(kube=space, name="image")
    job.wait_status(
        "image not pullable",
        lambda s: "ImageNotPullable" in str(s.get("conditions")) + str(s.get("hold")),
        within=120,
    )
    space.apply(counter(product, space, "image"))
    job.wait_phase("Running", within=240)
