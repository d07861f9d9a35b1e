"""`helm test` of the real chart: its trainer is killed and goes on, twice, and nothing is left.

Once with the pod's own disk, where the process is killed; once with the S3 store, where the pod is
deleted. And once where it must fail: then it says why, and nothing is left either.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from kit import tools
from kit.kube import Kube, wait_for
from kit.rtj import KIND
from kit.stack import CHART, RELEASE, SECRET, Stack, credentials_secret

NAME = f"{RELEASE}-{CHART.name}-test"
HOOKS = "serviceaccounts,roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io"


def helm(
    product: Stack, *arguments: str, program: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program or tools.helm()), *arguments, f"--namespace={product.operator.namespace}"],
        env={**os.environ, "KUBECONFIG": product.kube.kubeconfig},
        text=True,
        capture_output=True,
        check=False,
    )


def release(product: Stack, **values: object) -> None:
    """The same release with other values of its test: nothing of the operator changes."""
    settings = [f"--set-json=test.{name}={json.dumps(value)}" for name, value in values.items()]
    done = helm(product, "upgrade", RELEASE, str(CHART), "--reuse-values", *settings)
    assert done.returncode == 0, done.stderr
    assert f"helm test {RELEASE} -n {product.operator.namespace}" in done.stdout, "the next command"


def tried(product: Stack, *, program: Path) -> tuple[int, str]:
    """Exit code of `helm test`, and what its pod said; nothing but that ended pod is left."""
    done = helm(product, "test", RELEASE, "--timeout=180s", program=program)
    operator: Kube = product.operator
    said = operator.run("logs", NAME, check=False)
    test = "app.kubernetes.io/component=test"
    wait_for(
        lambda: not operator.list(HOOKS, selector=test),
        within=60,
        what="what the test was allowed to do is gone",
    )
    assert operator.find(KIND, NAME) is None, said
    assert not operator.list("pods", selector=f"resumable-training.dev/job={NAME}"), said
    return done.returncode, f"{said}\n{done.stderr}"


@pytest.mark.timeout(300)
def test_it_passes_twice_and_fails_in_words(product: Stack) -> None:
    release(product, store={}, podSpec={})
    code, said = tried(product, program=tools.helm())
    assert code == 0, said
    assert "TrainerSignaled, so InPlace" in said, said
    assert "attempt 2 resumes from step 1" in said
    assert "PASSED" in said

    product.operator.apply(credentials_secret(product.s3))
    store = {"url": "s3://checkpoints/trials", "endpoint": product.s3.endpoint}
    release(product, store={**store, "credentialsSecret": SECRET})
    code, said = tried(product, program=tools.helm3())
    assert code == 0, said
    assert "PodDeleted, so Recreate" in said, said
    assert "attempt 2 resumes from step 1" in said

    # A pod that cannot be made: what the job says of it is what the test says.
    release(product, store={}, podSpec={"volumes": []})
    code, said = tried(product, program=tools.helm())
    assert code != 0
    assert "the job says Accepted=False" in said, said
    assert "volume" in said
    assert "FAILED: " in said
