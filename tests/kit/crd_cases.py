"""Every rule of the API with specs that it takes and specs that it refuses.

Must never hold a spec that breaks two rules, for then neither is proved.
"""

from __future__ import annotations

from kit.crd_cases_gang import OF_TRAINER_AND_GANG
from kit.crd_jobs import (
    CLAIM,
    Case,
    bare,
    checkpoint,
    job,
    named,
    store,
)

OF_CHECKPOINTS: dict[str, Case] = {
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
}

CASES = OF_CHECKPOINTS | OF_TRAINER_AND_GANG
