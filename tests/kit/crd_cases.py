"""Every rule of the API with specs that it takes and specs that it refuses.

Must never hold a spec that breaks two rules, for then neither is proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rtj_api import contract

from kit.manifests import overlaid


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "trainer", "image": "trainer:1", "command": ["python", "train.py"]} | fields


def job(**spec: Any) -> dict[str, Any]:
    """A good job with `spec` laid over its own."""
    good = {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": {"name": "gpt"},
        "spec": {
            "checkpoint": {"path": "/checkpoints", "store": {"url": "s3://bucket/prefix"}},
            "template": {"spec": {"containers": [container()]}},
        },
    }
    return overlaid(good, {"spec": spec})


def named(name: str, **spec: Any) -> dict[str, Any]:
    return overlaid(job(**spec), {"metadata": {"name": name}})


def checkpoint(**fields: Any) -> dict[str, Any]:
    return job(checkpoint=fields)


def store(**fields: Any) -> dict[str, Any]:
    return job(checkpoint={"store": fields})


def pod(*containers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    found = {"containers": list(containers)} if containers else {}
    return job(template={"spec": found | fields})


CLAIM = {"name": "runs", "persistentVolumeClaim": {"claimName": "runs"}}


def bare(**pod_fields: Any) -> dict[str, Any]:
    """A job without a store."""
    return overlaid(pod(**pod_fields), {"spec": {"checkpoint": {"store": None}}})


def probed(command: list[str]) -> dict[str, Any]:
    """A job with this probe."""
    return checkpoint(validation={"probe": {"command": command}})


def needing(*keys: str) -> dict[str, Any]:
    """A job whose full saves must hold these keys."""
    return checkpoint(validation={"requiredKeys": list(keys)})


def resumed(*command: str, args: list[str] | None = None) -> dict[str, Any]:
    """A job with resumeArgs and this command."""
    words = container(command=list(command)) | ({"args": args} if args else {})
    return overlaid(pod(words), {"spec": {"checkpoint": {"resumeArgs": ["--resume", "x"]}}})


@dataclass(frozen=True)
class Case:
    """Jobs that one rule takes and refuses, and words of what it then says."""

    says: str
    takes: list[dict[str, Any]]
    refuses: list[dict[str, Any]]


def ruled(*rules: dict[str, Any]) -> dict[str, Any]:
    return job(recovery={"failureRules": list(rules)})


def elastic(*, replicas: int = 4, least: int = 2, **fields: Any) -> dict[str, Any]:
    """A job of that size with spec.elastic."""
    return job(replicas=replicas, elastic={"minReplicas": least} | fields)


def patient(seconds: int, *, timeout: int | None = None) -> dict[str, Any]:
    """An elastic job that waits so long, with that placement time-out."""
    limit = {} if timeout is None else {"placementTimeoutSeconds": timeout}
    return overlaid(elastic(scaleDownAfterSeconds=seconds), {"spec": {"recovery": limit}})


def queued(gang: str, **fields: Any) -> dict[str, Any]:
    return job(scheduling={"gang": gang, **({"queue": "q"} if gang == "kueue" else {})}, **fields)


CASES = {
    "name-length": Case(
        "Choose a shorter name; set checkpoint.runID",
        takes=[named("a" * 50), named("a" * 49, replicas=100)],
        refuses=[named("a" * 51), named("a" * 50, replicas=100)],
    ),
    "name-dots": Case("write '-' instead", takes=[named("a-b")], refuses=[named("a.b")]),
    "store-scheme": Case(
        "the store's scheme is unknown: write s3://bucket/prefix",
        takes=[
            store(url="s3://b"),
            store(url="file:///mnt/store"),
            store(url="gs://b/p"),
            store(url="az://c/p"),
            store(url="hdfs://namenode/p"),
        ],
        refuses=[store(url="abfs://b/p"), store(url="bucket/prefix"), store(url="/mnt/store")],
    ),
    "store-url-place": Case(
        "not a place in a store: write s3://bucket or s3://bucket/prefix",
        takes=[store(url="s3://my.bucket-1/a/b"), store(url="hdfs://namenode:8020/p")],
        refuses=[
            store(url="gs://"),
            store(url="az://key:secret@container/p"),
            store(url="az://account:1/p"),
            store(url="hdfs:///p"),
            store(url="s3://"),
            store(url="s3:///prefix"),
            store(url="s3://key:secret@bucket/p"),
            store(url="s3://bucket/p?versionId=1"),
        ],
    ),
    "store-url-file": Case(
        "write file:///directory with three slashes",
        takes=[store(url="file:///mnt/store")],
        refuses=[store(url="file://mnt/store"), store(url="file:///")],
    ),
    "store-url-dots": Case(
        "may not contain '.' or '..' as a part of its path",
        takes=[store(url="s3://b/v1.2/x..y")],
        refuses=[store(url="s3://b/../c"), store(url="file:///mnt/./store")],
    ),
    "store-or-volume": Case(
        "without checkpoint.store the saves need a volume that outlives every pod",
        takes=[store(url="s3://b"), bare(volumes=[CLAIM])],
        refuses=[bare(), bare(volumes=[])],
    ),
    "upload-rate": Case(
        "store.maxUploadBytesPerSecond is below 64Ki",
        takes=[
            store(maxUploadBytesPerSecond=rate) for rate in (65536, "64Ki", "50M", "1.5G", "1e9")
        ],
        refuses=[
            store(maxUploadBytesPerSecond=rate) for rate in (65535, 0, "63Ki", "500m", "-50M")
        ],
    ),
    "local-size": Case(
        "local.size is below 1Mi",
        takes=[checkpoint(local={"size": size}) for size in (1048576, "1Mi", "200Gi", "1e12")],
        refuses=[checkpoint(local={"size": size}) for size in (1048575, 0, "1000Ki", "-1Gi")],
    ),
    "local-memory": Case(
        "local.medium Memory needs local.size",
        takes=[
            checkpoint(local={"medium": "Memory", "size": "8Gi"}),
            checkpoint(local={"medium": "Disk"}),
        ],
        refuses=[checkpoint(local={"medium": "Memory"})],
    ),
    "max-restore": Case(
        "local.maxRestoreBytes is below 1",
        takes=[checkpoint(local={"maxRestoreBytes": size}) for size in (1, "500Gi")],
        refuses=[checkpoint(local={"maxRestoreBytes": size}) for size in (0, "0", "-1Gi")],
    ),
    "endpoint": Case(
        "endpoint is the URL of the store's server",
        takes=[store(endpoint="http://s3.storage:8333"), store(endpoint="https://[::1]:9000/")],
        refuses=[
            store(endpoint="s3.storage:8333"),
            store(endpoint="http://user:secret@s3.storage"),
            store(endpoint="http://s3.storage/bucket/prefix"),
        ],
    ),
    "ca-bundle-source": Case(
        "state either configMap or secret",
        takes=[
            store(caBundle={"configMap": "ca"}),
            store(caBundle={"secret": "ca", "key": "tls-ca.pem"}),
        ],
        refuses=[store(caBundle={}), store(caBundle={"configMap": "ca", "secret": "ca"})],
    ),
    "path-absolute": Case(
        "must be an absolute directory other than /",
        takes=[checkpoint(path="/checkpoints"), checkpoint(path="/data/run 1/ckpt")],
        refuses=[checkpoint(path="checkpoints"), checkpoint(path="/")],
    ),
    "path-plain": Case(
        "must be written in full",
        takes=[checkpoint(path="/a/b.c")],
        refuses=[
            checkpoint(path="/a//b"),
            checkpoint(path="/a/../b"),
            checkpoint(path="/a/"),
            checkpoint(path="/a:b"),
        ],
    ),
    "path-reserved": Case(
        "may not lie in /rtj, /rtj-podinfo, /proc, /sys or /dev",
        takes=[checkpoint(path="/rtjx"), checkpoint(path="/data/dev")],
        refuses=[checkpoint(path="/rtj"), checkpoint(path="/dev/shm/x")],
    ),
    "include-relative": Case(
        "relative to checkpoint.path and may not contain '..'",
        takes=[checkpoint(include=["model_*.npz", "a..b/*"])],
        refuses=[checkpoint(include=["/checkpoints/*.npz"]), checkpoint(include=["../*.npz"])],
    ),
    "outputs-absolute": Case(
        "absolute paths written in full",
        takes=[job(outputs=["/results", "/a/b.txt"]), job(outputs=[])],
        refuses=[job(outputs=["results"]), job(outputs=["/"]), job(outputs=["/a/../b"])],
    ),
    "run-id": Case(
        "each beginning with a letter or digit, such as team-a/gpt-7b",
        takes=[checkpoint(runID="team-a/gpt-7b"), checkpoint(runID="2026.1_x")],
        refuses=[
            checkpoint(runID="/a"),
            checkpoint(runID="a/"),
            checkpoint(runID="a/../b"),
            checkpoint(runID="a b"),
        ],
    ),
    "take-over": Case(
        "as the condition with reason RunInUse names it",
        takes=[checkpoint(takeOver="8a1b-22"), checkpoint(takeOver="c-1/8a1b-22")],
        refuses=[checkpoint(takeOver="team/gpt/1"), checkpoint(takeOver="my job")],
    ),
    "resume-from": Case(
        "resumeFrom names neither a save nor a run: write a save of this run",
        takes=[
            checkpoint(resumeFrom="f3-n2-s400"),
            checkpoint(resumeFrom="team/gpt"),
            checkpoint(resumeFrom="team/gpt/f3-n2-s400"),
            checkpoint(resumeFrom="s3://bucket/prefix/team/gpt"),
            checkpoint(resumeFrom="file:///mnt/runs/gpt/f1-n1"),
            checkpoint(resumeFrom="/mnt/last.pt"),
            checkpoint(resumeFrom="gs://bucket/old"),
            checkpoint(resumeFrom="hdfs://namenode:8020/old/ckpts"),
            checkpoint(resumeFrom="s3://bucket/old/ckpts/manifest.json"),
        ],
        refuses=[
            checkpoint(resumeFrom="//mnt"),
            checkpoint(resumeFrom="ftp://bucket/run"),
            checkpoint(resumeFrom="s3://bucket"),
            checkpoint(resumeFrom="../other"),
        ],
    ),
    "resume-from-plain": Case(
        "must be written in full, without '.' or '..'",
        takes=[checkpoint(resumeFrom="/data/..old/a.b")],
        refuses=[checkpoint(resumeFrom="/data/../old"), checkpoint(resumeFrom="/./data")],
    ),
    "resume-from-reserved": Case(
        "resumeFrom may not lie in /rtj",
        takes=[checkpoint(resumeFrom="/rtj-old"), checkpoint(resumeFrom="/data/proc")],
        refuses=[
            checkpoint(resumeFrom="/rtj-credentials/AWS_SECRET_ACCESS_KEY"),
            checkpoint(resumeFrom="/proc/1/environ"),
            checkpoint(resumeFrom="file:///var/run/secrets/x"),
        ],
    ),
    "interval-one": Case(
        "mttiFraction and maxSeconds would do nothing",
        takes=[
            checkpoint(interval={}),
            checkpoint(interval={"seconds": 900}),
            checkpoint(interval={"mttiFraction": 0.1}),
            checkpoint(interval={"mttiFraction": 0.1, "maxSeconds": 1800}),
            checkpoint(interval={"maxSeconds": 1800}),
        ],
        refuses=[
            checkpoint(interval={"seconds": 900, "mttiFraction": 0.1}),
            checkpoint(interval={"seconds": 900, "maxSeconds": 1800}),
        ],
    ),
    "retention-keep-last": Case(
        "set keepLast, without which every save is kept",
        takes=[
            checkpoint(retention={"keepLast": 3, "keepEvery": 1000, "thin": "none"}),
            checkpoint(retention={"keepLast": 3, "keepBest": {"metric": "acc", "mode": "max"}}),
            checkpoint(retention={"archiveAfterSeconds": 86400}),
        ],
        refuses=[
            checkpoint(retention={"keepEvery": 1000}),
            checkpoint(retention={"keepBest": {}}),
            checkpoint(retention={"thin": "geometric"}),
        ],
    ),
    "archive-store": Case(
        "archiveAfterSeconds needs an s3:// store",
        takes=[
            checkpoint(retention={"archiveAfterSeconds": 86400, "archiveClass": "DEEP_ARCHIVE"})
        ],
        refuses=[
            checkpoint(store={"url": "file:///runs"}, retention={"archiveAfterSeconds": 86400})
        ],
    ),
    "resume-args-variables": Case(
        "name a variable that does not exist: use $(RTJ_RESUME_CHECKPOINT)",
        takes=[
            checkpoint(resumeArgs=["--resume=$(RTJ_RESUME_CHECKPOINT)", "$(RTJ_RESUME_STEP)"]),
            checkpoint(resumeArgs=["$(RTJ_ATTEMPT)$(RTJ_CHECKPOINT_DIR)", "$(HOME)", "$x"]),
        ],
        refuses=[
            checkpoint(resumeArgs=["--resume", "$(RTJ_RESUME_CHECKPIONT)"]),
            checkpoint(resumeArgs=["$(RTJ_ATTEMPT)$(RTJ_RESUME_ARGS)"]),
        ],
    ),
    "probe-variables": Case(
        "validation.probe.command names a variable that does not exist",
        takes=[
            probed(["python", "check.py", "$(RTJ_RESUME_CHECKPOINT)"]),
            probed(["python", "-c", "x" * 4096]),
        ],
        refuses=[probed(["check", "$(RTJ_CHECKPOINT)"])],
    ),
    "probe-executable": Case(
        "begins with an empty word",
        takes=[probed(["/bin/true"]), probed(["python", ""])],
        refuses=[probed([""]), probed(["", "check.py"])],
    ),
    "required-keys-plain": Case(
        "requiredKeys are names with dots and the globs",
        takes=[needing("optimizer"), needing("model.head.*", "optim?.state")],
        refuses=[needing("my optimizer"), needing(".model"), needing("a..b"), needing("state[0]")],
    ),
    "store-region": Case(
        "region belongs to an s3:// store",
        takes=[store(region="eu-west-1")],
        refuses=[
            store(url="file:///mnt/store", region="eu-west-1"),
            store(url="gs://b", region="eu-west-1"),
        ],
    ),
    "store-endpoint-path": Case(
        "endpoint has a path, which only that of an az:// store may have",
        takes=[
            store(url="az://c", endpoint="http://azurite:10000/account"),
            store(endpoint="http://s3.storage/"),
        ],
        refuses=[store(endpoint="http://s3.storage/bucket")],
    ),
    "store-endpoint-several": Case(
        "endpoint names several servers, which only that of an hdfs:// store may do",
        takes=[store(url="hdfs://ha/p", endpoint="http://nn1:9870;http://nn2:9870")],
        refuses=[store(endpoint="http://a:1;http://b:1")],
    ),
    "store-network-fields": Case(
        "endpoint, credentialsSecret and caBundle belong to a store that is reached by network",
        takes=[
            store(region="eu-west-1", credentialsSecret="s3", endpoint="http://h:1"),
            store(url="gs://b", credentialsSecret="gs", endpoint="http://h:1"),
        ],
        refuses=[
            store(url="file:///mnt/store", credentialsSecret="s3"),
            store(url="file:///mnt/store", endpoint="http://h:1"),
            store(url="file:///mnt/store", caBundle={"secret": "ca"}),
        ],
    ),
    "store-outside-path": Case(
        "the store may not lie inside checkpoint.path",
        takes=[store(url="file:///checkpoints-store"), store(url="file:///mnt/store")],
        refuses=[store(url="file:///checkpoints"), store(url="file:///checkpoints/store")],
    ),
    "backoff-order": Case(
        "backoff.initialSeconds may not be above backoff.maxSeconds",
        takes=[
            job(recovery={"backoff": {"initialSeconds": 0.5, "maxSeconds": 0.5}}),
            job(recovery={"backoff": {"maxSeconds": 5}}),
            job(recovery={}),
        ],
        refuses=[
            job(recovery={"backoff": {"initialSeconds": 10, "maxSeconds": 5}}),
            job(recovery={"backoff": {"initialSeconds": 301}}),
        ],
    ),
    "failure-rule-asks": Case(
        "a failure rule fits nothing: state exitCodes, logPattern or both",
        takes=[
            ruled({"name": "Quota", "exitCodes": [42], "action": "Ignore"}),
            ruled({"name": "Quota", "logPattern": "quota *exceeded", "action": "Count"}),
            ruled({"name": "Q", "exitCodes": [1], "logPattern": "abc", "action": "FailJob"}),
            ruled(),
        ],
        refuses=[
            ruled({"name": "Quota", "action": "Ignore"}),
            ruled({"name": "Quota", "exitCodes": [], "action": "RollBack"}),
        ],
    ),
    "failure-rule-names": Case(
        "two failure rules have one name",
        takes=[
            ruled(
                {"name": "A", "exitCodes": [3], "action": "AvoidNode"},
                {"name": "B", "exitCodes": [3], "action": "Count"},
            )
        ],
        refuses=[
            ruled(
                {"name": "A", "exitCodes": [3], "action": "AvoidNode"},
                {"name": "A", "exitCodes": [4], "action": "Count"},
            )
        ],
    ),
    "resume-args-shell": Case(
        "$(RTJ_RESUME_ARGS) where the script calls the trainer",
        takes=[
            resumed("python", "train.py"),
            resumed("bash", "train.sh"),
            resumed("bash", "--norc", "train.sh"),
            resumed("sh", "-c", "exec python train.py $(RTJ_RESUME_ARGS)"),
            resumed("/bin/bash", args=["-euc", "python train.py $RTJ_RESUME_ARGS"]),
            resumed("python", "-c", "print('no shell')"),
            pod(container(command=["sh", "-c", "python train.py"])),
        ],
        refuses=[
            resumed("sh", "-c", "python train.py"),
            resumed("/usr/bin/bash", "-euo", "pipefail", "-c", "python train.py"),
            resumed("bash", args=["-lc", "python train.py"]),
        ],
    ),
    "trainer-container": Case(
        "several containers and none is named trainer",
        takes=[pod(container(name="anything")), pod(container(), container(name="tensorboard"))],
        refuses=[pod(container(name="a"), container(name="b"))],
    ),
    "trainer-command": Case(
        "the trainer's container needs a command",
        takes=[pod(container(), {"name": "tensorboard", "image": "tb:1"})],
        refuses=[
            pod({"name": "trainer", "image": "trainer:1"}),
            pod(container(command=[])),
            pod({"name": "trainer", "image": "trainer:1", "args": ["train.py"]}),
        ],
    ),
    "reserved-container": Case(
        "a container may not be named rtj-sidecar",
        takes=[pod(initContainers=[{"name": "fetch", "image": "f:1"}])],
        refuses=[
            pod(container(), container(name="rtj-sidecar")),
            pod(initContainers=[{"name": "rtj-sidecar", "image": "f:1"}]),
        ],
    ),
    "reserved-volume": Case(
        "a volume may not be named rtj-run, rtj-podinfo, rtj-checkpoints or rtj-credentials",
        takes=[pod(volumes=[{"name": "data", "emptyDir": {}}])],
        refuses=[
            pod(volumes=[{"name": "rtj-run", "emptyDir": {}}]),
            pod(volumes=[{"name": "rtj-checkpoints", "emptyDir": {}}]),
        ],
    ),
    "host-pid": Case(
        "hostPID is not allowed", takes=[pod(hostPID=False)], refuses=[pod(hostPID=True)]
    ),
    "reserved-labels": Case(
        "labels and annotations under resumable-training.dev/ are the operator's own",
        takes=[job(template={"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}})],
        refuses=[
            job(template={"metadata": {"labels": {contract.LABEL_RANK: "0"}}}),
            job(template={"metadata": {"annotations": {contract.ANNOTATION_DIRECTIVE: "{}"}}}),
        ],
    ),
    "elastic-batch": Case(
        "set both, or neither",
        takes=[elastic(), elastic(globalBatch=48, microBatch=4)],
        refuses=[elastic(globalBatch=48), elastic(microBatch=4)],
    ),
    "elastic-learning-rate": Case(
        "remove elastic.learningRate, or globalBatch and microBatch",
        takes=[
            elastic(learningRate="Linear"),
            elastic(globalBatch=48, microBatch=4, learningRate="None"),
        ],
        refuses=[elastic(globalBatch=48, microBatch=4, learningRate="Sqrt")],
    ),
    "elastic-allowed": Case(
        "lists a size below elastic.minReplicas",
        takes=[elastic(allowedReplicas=[2, 4])],
        refuses=[elastic(allowedReplicas=[1, 2])],
    ),
    "elastic-min": Case(
        "elastic.minReplicas must be below replicas",
        takes=[elastic(replicas=2, least=1), elastic(replicas=4, least=3)],
        refuses=[elastic(replicas=2, least=2), elastic(replicas=2, least=3)],
    ),
    "elastic-most": Case(
        "lists a size above replicas",
        takes=[elastic(allowedReplicas=[3])],
        refuses=[elastic(allowedReplicas=[3, 5])],
    ),
    "elastic-gang": Case(
        "remove elastic, or set scheduling.gang to none",
        takes=[overlaid(elastic(), queued("none")), queued("kueue")],
        refuses=[overlaid(elastic(), queued("kueue")), overlaid(elastic(), queued("volcano"))],
    ),
    "elastic-patience": Case(
        "must be below recovery.placementTimeoutSeconds",
        takes=[patient(599), patient(600, timeout=700), elastic()],
        refuses=[patient(600), patient(120, timeout=60)],
    ),
}
