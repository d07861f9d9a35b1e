"""The chart as Helm renders it: valid objects, least privilege, no value without an effect."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kit import tools
from kit.chart import CHART, MONITORING_APIS, render
from kit.chart_objects import VARIANTS, find, kinds, operator
from kit.prometheus import DISTRUST

SYNC = CHART.parent / "sync.py"


KUBERNETES = "1.34"


def test_helm_lints_it_strictly() -> None:
    done = subprocess.run(
        [tools.helm(), "lint", "--strict", CHART], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_helm_3_renders_the_same_objects() -> None:
    """A whole installation with it is a long test: tests/contract/chart/test_install.py."""
    for values in VARIANTS.values():
        older = render(values=values, api_versions=MONITORING_APIS, program=tools.helm3())
        assert older == render(values=values, api_versions=MONITORING_APIS)


def why_invalid(each: dict[str, Any]) -> str | None:
    try:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return None


@pytest.mark.parametrize("variant", VARIANTS)
def test_rendered_objects_are_valid(variant: str) -> None:
    objects = render(values=VARIANTS[variant], api_versions=MONITORING_APIS)
    # Kubernetes has no schema of the monitoring kinds; their shape is tested below.
    own = [each for each in objects if "monitoring.coreos.com" not in each["apiVersion"]]
    assert "Deployment" in kinds(own)
    assert {each["kind"]: wrong for each in own if (wrong := why_invalid(each))} == {}


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


def test_pod_keeps_to_the_restricted_standard() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    deployment = find(render(), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert [set(volume) - {"name"} for volume in pod["volumes"]] == [{"projected"}, {"emptyDir"}]
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp", token]
    # The token is this container's only: whoever else uses the ServiceAccount gets none by itself.
    assert pod["automountServiceAccountToken"] is False
    assert find(render(), "ServiceAccount")["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("replicas", "unavailable", "budgets"), [(1, 0, 0), (2, 1, 1), (3, 1, 1)])
def test_replicas_can_be_drained_and_replaced_one_by_one(
    replicas: int, unavailable: int, budgets: int
) -> None:
    """A budget that allows no eviction would block every drain."""
    objects = render(values={"replicas": replicas})
    deployment = find(objects, "Deployment")["spec"]
    assert deployment["replicas"] == replicas
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == unavailable
    found = [each["spec"] for each in objects if each["kind"] == "PodDisruptionBudget"]
    assert len(found) == budgets
    for budget in found:
        assert (budget["maxUnavailable"], "minAvailable" in budget) == (1, False)
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        assert budget["selector"] == deployment["selector"]
    [away] = deployment["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert away["podAffinityTerm"]["labelSelector"] == deployment["selector"]
    assert {t["tolerationSeconds"] for t in deployment["template"]["spec"]["tolerations"]} == {10}
    off = {"replicas": replicas, "podDisruptionBudget.enabled": False}
    assert "PodDisruptionBudget" not in kinds(render(values=off))


def test_the_lease_is_made_without_a_holder_and_named_to_the_operator() -> None:
    """An upgrade touches only what the manifest names: who holds it stays."""
    objects = render(values={"leaderElection.leaseSeconds": 15})
    lease = find(objects, "Lease")
    assert "spec" not in lease
    environment = {e["name"]: e.get("value") for e in operator(objects)["env"]}
    assert environment["RTJ_LEASE"] == lease["metadata"]["name"]
    assert environment["RTJ_LEASE_SECONDS"] == "15"


def test_what_is_added_arrives_as_it_is() -> None:
    objects = render(values=VARIANTS["everything"])
    assert find(objects, "ConfigMap", name="their-own")
    text = "{{ .Values.not.a.template }}"
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x"},
        "data": {"a": text},
    }
    kept = render(values={"extraObjects": [config]})
    assert find(kept, "ConfigMap", name="x")["data"]["a"] == text
    pod = find(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["hostUsers"] is False
    [spread] = pod["topologySpreadConstraints"]
    selector = find(objects, "Deployment")["spec"]["selector"]
    assert spread["labelSelector"] == selector


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
    [of_pods] = pods["podMetricsEndpoints"]
    assert of_pods["port"] == "rtj-metrics"
    # What the tests' Prometheus does with hostile pods is what the monitor asks for.
    assert of_pods["honorLabels"] is False
    assert {
        "sample_limit": pods["sampleLimit"],
        "metric_relabel_configs": [
            {{"sourceLabels": "source_labels"}.get(key, key): value for key, value in rule.items()}
            for rule in of_pods["metricRelabelings"]
        ],
    } == DISTRUST
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


def test_notes_say_what_was_left_out() -> None:
    def notes(*arguments: str) -> str:
        command = [tools.helm(), "install", "rto", CHART, "--dry-run=client", *arguments]
        return subprocess.run(command, text=True, capture_output=True, check=True).stdout

    text = notes()
    assert "ServiceMonitor: the cluster has no such API" in " ".join(text.split())
    assert "kubectl delete crd resumabletrainingjobs.resumable-training.dev" in text


def test_dashboard_text_reaches_the_config_map_untouched() -> None:
    files = {path.name: path.read_text() for path in (CHART / "files/dashboards").glob("*.json")}
    assert len(files) == 4
    assert dashboards(render()) == files


def test_a_dashboards_links_lead_to_the_runbooks_of_the_site() -> None:
    address = 'https://docs.example.com/a"b/{alert}/'
    made = dashboards(render(values={"monitoring.rules.runbookURL": address}))
    for text in made.values():
        board = json.loads(text)
        links = [link["url"] for panel in board["panels"] for link in panel.get("links", [])]
        assert links
        for url in links:
            assert re.fullmatch(r'https://docs\.example\.com/a"b/\w+/', url)
        assert "docs/runbooks/" not in text


def dashboards(objects: list[dict[str, Any]]) -> dict[str, str]:
    """File → text, of every ConfigMap with the label that Grafana's sidecar looks for."""
    found: dict[str, str] = {}
    for each in objects:
        if each["metadata"].get("labels", {}).get("grafana_dashboard") == "1":
            assert each["kind"] == "ConfigMap"
            assert len(json.dumps(each)) < 262_144, "kubectl apply keeps a copy in an annotation"
            found |= each["data"]
    return found


def test_no_template_passes_text_through_tpl() -> None:
    for path in (CHART / "templates").iterdir():
        assert not re.search(r"\{\{-?\s*tpl\b|\|\s*tpl\b", path.read_text()), path.name


def test_network_policy_lets_in_only_metrics_and_health() -> None:
    assert "NetworkPolicy" not in kinds(render())
    policy = find(render(values={"networkPolicy.enabled": True}), "NetworkPolicy")["spec"]
    assert [port["port"] for port in policy["ingress"][0]["ports"]] == ["metrics", "health"]
    assert {rule["ports"][0]["port"] for rule in policy["egress"] if "ports" in rule} == {53}
