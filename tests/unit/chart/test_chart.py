"""The chart as Helm renders it: valid objects, least privilege, no value without an effect."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kit import tools
from kit.chart import CHART, MONITORING_APIS, render

SYNC = CHART.parent / "sync.py"
KUBERNETES = "1.34"
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "namespaces": {"watch.namespaces": ["team-a", "team-b"]},
    "everything": {
        "fullnameOverride": "rtj",
        "networkPolicy.enabled": True,
        "image.digest": f"sha256:{'a' * 64}",
        "imagePullSecrets": [{"name": "registry"}],
        "args": ["--verbose"],
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com"}],
        "podAnnotations": {"example.com/a": "b"},
        "podLabels": {"team": "ml"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "crds.annotations": {"example.com/a": "b"},
        "serviceAccount.annotations": {"example.com/a": "b"},
        "monitoring.dashboards.annotations": {"grafana_folder": "Training"},
        "monitoring.labels": {"release": "prometheus"},
        "monitoring.renderMode": "alwaysRender",
    },
    "least": {
        "crds.install": False,
        "rbac.create": False,
        "rbac.aggregateRoles": False,
        "serviceAccount.create": False,
        "serviceAccount.name": "theirs",
        "monitoring.dashboards.enabled": False,
    },
}


def find(objects: list[dict[str, Any]], kind: str, *, name: str | None = None) -> dict[str, Any]:
    found = [
        each
        for each in objects
        if each["kind"] == kind and (name is None or each["metadata"]["name"] == name)
    ]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def kinds(objects: list[dict[str, Any]]) -> set[str]:
    return {each["kind"] for each in objects}


def operator(objects: list[dict[str, Any]]) -> dict[str, Any]:
    [container] = find(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def test_helm_lints_it_strictly() -> None:
    done = subprocess.run(
        [tools.helm(), "lint", "--strict", CHART], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_rendered_objects_are_valid(variant: str) -> None:
    for each in render(values=VARIANTS[variant], api_versions=MONITORING_APIS):
        if "monitoring.coreos.com" in each["apiVersion"]:
            continue  # Kubernetes has no schema of these; their shape is tested below.
        kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_crd_is_the_generated_file() -> None:
    subprocess.run(["python3", SYNC, "--check"], check=True)
    source = yaml.safe_load((CHART / "files" / "crd.yaml").read_text())
    rendered = find(render(), "CustomResourceDefinition")
    assert rendered["spec"] == source["spec"]
    assert rendered["metadata"]["name"] == source["metadata"]["name"]
    assert rendered["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    given_up = find(render(values={"crds.keep": False}), "CustomResourceDefinition")
    assert "helm.sh/resource-policy" not in given_up["metadata"].get("annotations", {})
    # kubectl apply keeps a copy in an annotation, which may not be larger than this.
    assert len(json.dumps(rendered)) < 200_000


def test_operator_gets_what_it_reads() -> None:
    container = operator(
        render(
            values={
                "watch.namespaces": ["b", "a"],
                "logLevel": "debug",
                "sidecar.image.digest": f"sha256:{'b' * 64}",
                "sidecar.image.pullPolicy": "Never",
                "image.tag": "7",
                "ports.health": 8081,
                "sidecar.resources": {"limits": {"memory": "2Gi"}},
            }
        )
    )
    plain = {item["name"]: item["value"] for item in container["env"] if "value" in item}
    fields = {
        item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"]
        for item in container["env"]
        if "valueFrom" in item
    }
    assert plain == {
        "RTJ_SIDECAR_IMAGE": f"resumable-training-sidecar@sha256:{'b' * 64}",
        "RTJ_SIDECAR_IMAGE_PULL_POLICY": "Never",
        "RTJ_WATCH_NAMESPACES": "b,a",
        "RTJ_LOG_LEVEL": "debug",
        "RTJ_HEALTH_PORT": "8081",
        "RTJ_METRICS_PORT": "9090",
        "RTJ_WORKERS": "16",
        "RTJ_SIDECAR_RESOURCES": '{"limits":{"memory":"2Gi"}}',
    }
    assert fields == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    assert container["image"] == "resumable-training-operator:7"
    assert container["command"] == ["python3", "-m", "rtj_operator"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"health": 8081, "metrics": 9090}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}


def test_pod_keeps_to_the_restricted_standard() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    deployment = find(render(), "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert all(set(volume) == {"name", "emptyDir"} for volume in pod["volumes"])
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]


def rules_of(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in objects:
        if each["kind"] in {"Role", "ClusterRole"}:
            for rule in each["rules"]:
                yield f"{each['kind']} {each['metadata'].get('namespace', '*')}", rule


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_role_has_wildcards_secrets_or_other_ways_to_more_power(variant: str) -> None:
    for where, rule in rules_of(render(values=VARIANTS[variant])):
        for field in ("apiGroups", "resources", "verbs"):
            assert "*" not in rule[field], where
        forbidden = {
            "secrets", "configmaps", "serviceaccounts", "serviceaccounts/token", "pods/exec",
            "pods/attach", "roles", "clusterroles", "rolebindings", "clusterrolebindings",
            "nodes/proxy", "customresourcedefinitions",
        }  # fmt: skip
        assert not forbidden & set(rule["resources"]), where
        if "namespaces" in rule["resources"]:
            assert (rule["resourceNames"], rule["verbs"]) == (["kube-system"], ["get"]), where
        assert not {"impersonate", "bind", "escalate"} & set(rule["verbs"]), where


def granted(objects: list[dict[str, Any]], *, name: str) -> set[tuple[str, str, str, str]]:
    """(namespace or `*`, group, resource, verb) of the roles that are bound to the operator."""
    out = set()
    for each in objects:
        if each["kind"] in {"Role", "ClusterRole"} and each["metadata"]["name"] == name:
            where = each["metadata"].get("namespace", "*")
            for rule in each["rules"]:
                out |= {
                    (where, group, resource, verb)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return out


def expand(where: str, group: str, resource: str, verbs: str) -> set[tuple[str, str, str, str]]:
    return {(where, group, resource, verb) for verb in verbs.split()}


ALWAYS = (
    expand("*", "", "nodes", "get list watch")
    | expand("*", "", "namespaces", "get")
    | expand("kube-node-lease", "coordination.k8s.io", "leases", "get list")
)


def in_namespace(where: str) -> set[tuple[str, str, str, str]]:
    group = "resumable-training.dev"
    return (
        expand(where, group, "resumabletrainingjobs", "get list watch")
        | expand(where, group, "resumabletrainingjobs/status", "patch update")
        | expand(where, group, "resumabletrainingjobs/finalizers", "update")
        | expand(where, "", "pods", "get list watch create patch delete")
        | expand(where, "events.k8s.io", "events", "create patch")
        | expand(where, "", "events", "list")
    )


def test_operator_may_do_exactly_this() -> None:
    name = "rto-resumable-training-operator"
    assert granted(render(), name=name) == ALWAYS | in_namespace("*")


def test_with_a_list_of_namespaces_the_same_rules_hold_there_only() -> None:
    objects = render(values=VARIANTS["namespaces"])
    name = "rto-resumable-training-operator"
    assert granted(objects, name=name) == (ALWAYS | in_namespace("team-a") | in_namespace("team-b"))
    bound = {
        each["metadata"]["namespace"]
        for each in objects
        if each["kind"] == "RoleBinding"
        and each["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name
        }
        and each["subjects"] == [
            {"kind": "ServiceAccount", "name": name, "namespace": "rtj-system"}
        ]
    }  # fmt: skip
    assert bound == {"team-a", "team-b", "kube-node-lease"}


def test_cluster_roles_of_people_cover_jobs() -> None:
    objects = render()
    by_name = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ClusterRole"}
    view = by_name["rto-resumable-training-operator-view"]
    edit = by_name["rto-resumable-training-operator-edit"]
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    assert {label for label in view["metadata"]["labels"] if prefix in label} == {f"{prefix}view"}
    assert {label for label in edit["metadata"]["labels"] if prefix in label} == {
        f"{prefix}edit",
        f"{prefix}admin",
    }
    assert view["rules"][0]["verbs"] == ["get", "list", "watch"]
    assert "create" in edit["rules"][0]["verbs"]


def test_monitors_are_rendered_where_their_api_is() -> None:
    monitors = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    assert not monitors & kinds(render())
    assert monitors <= kinds(render(api_versions=MONITORING_APIS))
    assert monitors <= kinds(render(values={"monitoring.renderMode": "alwaysRender"}))
    with pytest.raises(AssertionError, match="is not in this cluster"):
        render(values={"monitoring.renderMode": "failIfMissing"})
    for kind, value in (
        ("ServiceMonitor", "serviceMonitor"),
        ("PodMonitor", "podMonitor"),
        ("PrometheusRule", "rules"),
    ):
        off = {f"monitoring.{value}.enabled": False, "monitoring.renderMode": "alwaysRender"}
        assert kind not in kinds(render(values=off))


def test_monitors_select_what_there_is() -> None:
    objects = render(
        values={"monitoring.labels": {"release": "prom"}, "watch.namespaces": ["team-a"]},
        api_versions=MONITORING_APIS,
    )
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        assert find(objects, kind)["metadata"]["labels"]["release"] == "prom"
    monitor, service = find(objects, "ServiceMonitor"), find(objects, "Service")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    assert service["metadata"]["namespace"] in monitor["spec"]["namespaceSelector"]["matchNames"]
    pod = find(objects, "Deployment")["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["honorLabels"] is True
    # The alert on a dead operator depends on it.
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == (
        "resumable-training-operator"
    )
    pods = find(objects, "PodMonitor")["spec"]
    assert pods["namespaceSelector"] == {"matchNames": ["team-a"]}
    assert pods["podMetricsEndpoints"][0]["port"] == "rtj-metrics"
    assert find(render(api_versions=MONITORING_APIS), "PodMonitor")["spec"][
        "namespaceSelector"
    ] == {"any": True}


def test_names_are_those_of_the_contract() -> None:
    contract = pytest.importorskip("rtj_api.contract")
    objects = render(api_versions=MONITORING_APIS)
    pods = find(objects, "PodMonitor")["spec"]
    assert pods["selector"]["matchExpressions"][0]["key"] == contract.LABEL_JOB
    assert pods["podMetricsEndpoints"][0]["port"] == contract.PORT_STATUS_NAME
    assert pods["podMetricsEndpoints"][0]["path"] == contract.PATH_METRICS
    labels = {
        rule["targetLabel"]: rule["sourceLabels"][0]
        for rule in pods["podMetricsEndpoints"][0]["relabelings"]
    }
    for label, name in (("name", contract.LABEL_JOB), ("rank", contract.LABEL_RANK)):
        escaped = re.sub(r"[^a-zA-Z0-9_]", "_", name)
        assert labels[label] == f"__meta_kubernetes_pod_label_{escaped}"
    crd = find(objects, "CustomResourceDefinition")
    assert crd["metadata"]["name"] == f"{contract.PLURAL}.{contract.GROUP}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"imagee": {}}, "imagee"),
        ({"image.tagg": "1"}, "tagg"),
        ({"monitoring.rules.restartBurst": "three"}, "restartBurst"),
        ({"monitoring.rules.restartsWithoutProgress": 0}, "restartsWithoutProgress"),
        ({"monitoring.renderMode": "maybe"}, "renderMode"),
        ({"watch.namespaces": "default"}, "namespaces"),
        ({"watch.namespaces": ["Team A"]}, "namespaces"),
        ({"image.digest": "sha256:123"}, "digest"),
        ({"ports.health": 80}, "health"),
        ({"logLevel": "loud"}, "logLevel"),
        ({"serviceAccount.create": False}, "serviceAccount.name is needed"),
    ],
)
def test_a_wrong_value_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        render(values=values)


def test_it_can_be_a_part_of_an_umbrella_chart(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v2",
                "name": "umbrella",
                "version": "1.0.0",
                "dependencies": [
                    {
                        "name": CHART.name,
                        "version": "0.1.0",
                        "condition": f"{CHART.name}.enabled",
                    }
                ],
            }
        )
    )
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / CHART.name).symlink_to(CHART)
    values = {"global.imageRegistry": "example.com", f"{CHART.name}.enabled": True}
    assert "Deployment" in kinds(render(chart=tmp_path, values=values))


def leaves(value: Any, *, at: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, at=f"{at}.{key}")
    else:
        yield at


def test_every_value_is_used_and_every_used_value_is_there() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    # `$rules` is the one short name that the templates give to a part of the values.
    short_name = "$rules := .Values.monitoring.rules"
    texts = [path.read_text().replace(short_name, "") for path in (CHART / "templates").iterdir()]
    used = {
        match.replace("$rules", ".monitoring.rules")
        for text in texts
        for match in re.findall(r"(?:\.Values|(?=\$rules\.))((?:\$rules)?(?:\.\w+)+)", text)
    }
    defined = set(leaves(values))
    for name in defined:
        assert any(name == use or name.startswith(f"{use}.") for use in used), f"{name} is unused"
    for use in used:
        assert any(name == use or name.startswith(f"{use}.") for name in defined), (
            f"{use} is used by a template and not in values.yaml"
        )
    assert set(schema["properties"]) == set(values) | {"global", "enabled"}


def test_notes_say_what_was_left_out() -> None:
    def notes(*arguments: str) -> str:
        command = [tools.helm(), "install", "rto", CHART, "--dry-run=client", *arguments]
        return subprocess.run(command, text=True, capture_output=True, check=True).stdout

    text = notes()
    assert "no ServiceMonitor, PodMonitor or PrometheusRule" in " ".join(text.split())
    assert "kubectl delete crd resumabletrainingjobs.resumable-training.dev" in text


def test_dashboard_text_reaches_the_config_map_untouched() -> None:
    config = find(render(), "ConfigMap")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    files = {path.name: path.read_text() for path in (CHART / "files/dashboards").glob("*.json")}
    assert files
    assert config["data"] == files


def test_no_template_passes_text_through_tpl() -> None:
    for path in (CHART / "templates").iterdir():
        assert not re.search(r"\{\{-?\s*tpl\b|\|\s*tpl\b", path.read_text()), path.name


def test_network_policy_lets_in_only_metrics_and_health() -> None:
    assert "NetworkPolicy" not in kinds(render())
    policy = find(render(values={"networkPolicy.enabled": True}), "NetworkPolicy")["spec"]
    assert [port["port"] for port in policy["ingress"][0]["ports"]] == ["metrics", "health"]
    assert {rule["ports"][0]["port"] for rule in policy["egress"] if "ports" in rule} == {53}


def test_operator_understands_what_the_chart_sets() -> None:
    settings = pytest.importorskip("rtj_operator.settings")
    container = operator(
        render(values={"sidecar.resources": {"limits": {"cpu": 1}}, "watch.namespaces": ["a"]})
    )
    environment = {item["name"]: item.get("value", "from-the-pod") for item in container["env"]}
    known = {name for name, _, _ in settings.VARIABLES}
    assert set(environment) <= known
    read = settings.settings_from(environment, hostname="host")
    assert read.namespaces == ("a",)
    assert read.sidecar_resources == {"limits": {"cpu": 1}}
    assert read.sidecar_image == "resumable-training-sidecar:0.1.0"
