"""Probes, hooks and the hosts' network, as they reach the supervisor."""

from __future__ import annotations

import json

from kit.specs import (
    FULL,
    HOST_NETWORK,
    OWNER,
    SMALLEST,
    a_pod,
    a_spec,
    config_of,
    sidecar_of,
    trainer_of,
)
from rtj_operator.core.pod_facts import status_port
from rtj_operator.shell.pod_views import status_port_of


def test_probes_are_asked_through_the_supervisor() -> None:
    trainer = trainer_of(a_pod(FULL), "train")
    probe = ["/rtj/bin/supervise", "probe", "--kind"]
    first = {"words": ["--timeout", "3", "--tcp", "127.0.0.1:80"], "delay": 0, "limit": 30}
    startup = ["--startup", json.dumps(first)]
    http = ["--timeout", "1", "--http", "http://127.0.0.1:8000/live"]
    assert trainer["livenessProbe"] == {
        "exec": {"command": [*probe, "liveness", "--threshold", "3", *startup, *http]},
        "periodSeconds": 7,
        "timeoutSeconds": 1 + 3 + 20,  # its own, the startup probe's, and room for the process
        "failureThreshold": 3 + 10,
    }
    assert trainer["readinessProbe"]["exec"]["command"] == [
        *probe, "readiness", *startup, "--timeout", "1", "--", "ready",
    ]  # fmt: skip
    assert trainer["startupProbe"]["exec"]["command"] == [*probe, "startup", *first["words"]]


def test_a_delay_counts_from_each_trainers_start_and_the_grace_is_the_supervisors() -> None:
    liveness = {
        "exec": {"command": ["alive"]},
        "initialDelaySeconds": 40,
        "failureThreshold": 5,
        "terminationGracePeriodSeconds": 7,
    }
    found = trainer_of(a_pod(a_spec(trainer={"livenessProbe": liveness})))["livenessProbe"]
    assert "initialDelaySeconds" not in found
    assert found["exec"]["command"][2:] == [
        *("--kind", "liveness", "--delay", "40", "--threshold", "5", "--grace", "7"),
        *("--timeout", "1", "--", "alive"),
    ]


def test_post_start_is_the_supervisors_and_the_kubelets_only_without_one() -> None:
    pod = a_pod(FULL)
    hook = trainer_of(pod, "train")["lifecycle"]["postStart"]["exec"]["command"]
    assert hook == ["/rtj/bin/supervise", "probe", "--kind", "unsupervised", "--", "warm-up"]
    assert config_of(pod)["postStart"] == ["--", "warm-up"]
    asleep = {"lifecycle": {"postStart": {"sleep": {"seconds": 3}}}}
    pod = a_pod(a_spec(trainer=asleep))
    assert trainer_of(pod)["lifecycle"] == asleep["lifecycle"]
    assert config_of(pod)["postStart"] == []


def test_host_network_declares_no_port_and_each_rank_has_its_own() -> None:
    pods = [a_pod(HOST_NETWORK, rank=rank) for rank in (0, 1)]
    assert all("ports" not in sidecar_of(pod) for pod in pods)
    ports = [status_port_of(pod) for pod in pods]
    assert ports == [
        status_port(HOST_NETWORK, owner=OWNER, rank=rank, made_in=1) for rank in (0, 1)
    ]
    later = [status_port(HOST_NETWORK, owner=OWNER, rank=rank, made_in=2) for rank in (0, 1)]
    assert len({*ports, *later}) == 4, "the pods before may still drain on the same node"
    assert all(10_000 <= port < 30_000 for port in ports)
    assert all(config_of(pod)["rendezvousTold"] for pod in pods)
    assert not config_of(a_pod(SMALLEST))["rendezvousTold"]
