"""Cases of the CRD's rules about the trainer, its restarts and its gang: see `kit.crd_cases`.

Must never hold a spec that breaks two rules, for then neither is proved.
"""

from __future__ import annotations

from rtj_api import contract

from kit.crd_jobs import (
    Case,
    checkpoint,
    container,
    elastic,
    job,
    needing,
    patient,
    pod,
    probed,
    queued,
    resumed,
    ruled,
    store,
)
from kit.manifests import overlaid

# Names of rules -> cases.
OF_TRAINER_AND_GANG: dict[str, Case] = {
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
