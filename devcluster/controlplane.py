"""etcd, kube-apiserver, controller-manager, scheduler and CoreDNS, as plain processes.

They listen on the cluster's own address only, so that clusters side by side need no different
ports. Flags follow kubeadm's where a flag decides what a user sees.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster import binaries, certs, cgroups
from devcluster.api import Api
from devcluster.layout import API_PORT, DNS_PORT, Layout
from devcluster.processes import Process, Registry, spawn, wait_until

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns")
HOST_NAME = "host.devcluster.internal"
ISSUER = "https://kubernetes.default.svc"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True)
class ControlPlane:
    layout: Layout
    registry: Registry
    audit: bool = False
    apiserver_args: tuple[str, ...] = ()
    kcm_args: tuple[str, ...] = ()

    @property
    def audit_log(self) -> Path:
        return self.layout.logs / "audit.log"

    def api(self) -> Api:
        layout = self.layout
        return Api(host=layout.host_ip, port=API_PORT, certificates=layout.certificates)

    def make_certificates(self) -> None:
        layout, directory = self.layout, self.layout.certificates
        certs.make_authority(directory)
        service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
        names = (
            *("127.0.0.1", "localhost", layout.host_ip, layout.api_service_ip),
            *(*service, "kubernetes.default.svc.cluster.local"),
        )
        for subject in (
            certs.Subject("apiserver", "kube-apiserver", names=names),
            certs.Subject("admin", "devcluster-admin", "system:masters"),
            certs.Subject("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
            certs.Subject("front-proxy", "front-proxy-client"),
            certs.Subject("kcm", "system:kube-controller-manager"),
            certs.Subject("scheduler", "system:kube-scheduler"),
            certs.Subject("proxy", "system:kube-proxy"),
            certs.Subject("coredns", "system:coredns"),
        ):
            certs.issue(directory, subject)
        for stem in ("kcm", "scheduler", "proxy", "coredns"):
            self._kubeconfig(directory / f"{stem}.kubeconfig", stem)
        self._kubeconfig(layout.kubeconfig, "admin")

    def _kubeconfig(self, target: Path, stem: str) -> None:
        layout = self.layout
        name = f"devcluster-{layout.name}"
        certs.write_kubeconfig(
            target, directory=layout.certificates, stem=stem, server=layout.server, name=name
        )

    def start_store_and_api(self) -> None:
        """etcd and the API server; returns when the API server says ready."""
        cgroups.make(f"{self.layout.cgroup}/control-plane")
        self._end_strays()
        self.layout.logs.mkdir(parents=True, exist_ok=True)
        etcd = self._ensure("etcd", self._etcd())
        server = self._ensure("kube-apiserver", self._apiserver())
        wait_until(
            self.api().ready, timeout=60, what="the API server to be ready", alive=(etcd, server)
        )

    def start_rest(self) -> None:
        api = self.api()
        publish_dns(api, self.layout)
        pki = self.layout.certificates
        self._ensure("kube-controller-manager", self._controller_manager())
        self._ensure(
            "kube-scheduler",
            (
                *(f"--{kind}kubeconfig={pki}/scheduler.kubeconfig" for kind in KUBECONFIG_FLAGS),
                f"--bind-address={self.layout.host_ip}",
                "--leader-elect=false",
            ),
        )
        corefile = self.layout.directory / "Corefile"
        corefile.write_text(desired_corefile(self.layout, kubeconfig=pki / "coredns.kubeconfig"))
        self._ensure("coredns", ("-conf", str(corefile)))

    def _end_strays(self) -> None:
        """Processes of ours that an `up` killed half-way started but could not record."""
        group = f"{self.layout.cgroup}/control-plane"
        recorded = {process.pid for process in map(self.registry.alive, COMPONENTS) if process}
        if cgroups.pids(group) - recorded:
            cgroups.kill(group)

    def _ensure(self, name: str, arguments: Sequence[str]) -> Process:
        running = self.registry.alive(name)
        if running is not None:
            return running
        process = spawn(
            name,
            [str(binaries.path(name)), *arguments],
            log=self.layout.logs / f"{name}.log",
            cgroups=cgroups.procs_files(f"{self.layout.cgroup}/control-plane"),
        )
        self.registry.record(process)
        return process

    def _etcd(self) -> tuple[str, ...]:
        client = f"http://{self.layout.host_ip}:2379"
        peer = f"http://{self.layout.host_ip}:2380"
        return (
            f"--data-dir={self.layout.directory}/etcd",
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=default={peer}",
            # A test cluster may lose its last second in a power cut of the machine.
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def _apiserver(self) -> tuple[str, ...]:
        layout, pki = self.layout, self.layout.certificates
        audit: tuple[str, ...] = ()
        if self.audit:
            policy = layout.directory / "audit-policy.json"
            policy.write_text(json.dumps(AUDIT_POLICY))
            audit = (
                f"--audit-policy-file={policy}",
                f"--audit-log-path={self.audit_log}",
                "--audit-log-maxsize=100000",
            )
        return (
            f"--etcd-servers=http://{layout.host_ip}:2379",
            *(f"--bind-address={layout.host_ip}", f"--advertise-address={layout.host_ip}"),
            f"--secure-port={API_PORT}",
            f"--service-cluster-ip-range={layout.service_cidr}",
            *(
                f"--tls-cert-file={pki}/apiserver.crt",
                f"--tls-private-key-file={pki}/apiserver.key",
            ),
            f"--client-ca-file={pki}/ca.crt",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={pki}/sa.pub",
            f"--service-account-signing-key-file={pki}/sa.key",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/kubelet-client.crt",
            f"--kubelet-client-key={pki}/kubelet-client.key",
            "--kubelet-preferred-address-types=InternalIP",
            f"--requestheader-client-ca-file={pki}/ca.crt",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={pki}/front-proxy.crt",
            f"--proxy-client-key-file={pki}/front-proxy.key",
            # It runs on no node, so it reaches webhooks and extensions by pod address.
            "--enable-aggregator-routing=true",
            "--endpoint-reconciler-type=lease",
            *audit,
            *self.apiserver_args,
        )

    def _controller_manager(self) -> tuple[str, ...]:
        layout, pki = self.layout, self.layout.certificates
        return (
            *(f"--{kind}kubeconfig={pki}/kcm.kubeconfig" for kind in KUBECONFIG_FLAGS),
            f"--bind-address={layout.host_ip}",
            f"--cluster-cidr={layout.cluster_cidr}",
            "--allocate-node-cidrs=false",
            "--use-service-account-credentials=true",
            f"--root-ca-file={pki}/ca.crt",
            f"--service-account-private-key-file={pki}/sa.key",
            *(
                f"--cluster-signing-cert-file={pki}/ca.crt",
                f"--cluster-signing-key-file={pki}/ca.key",
            ),
            "--leader-elect=false",
            *self.kcm_args,
        )


KUBECONFIG_FLAGS = ("", "authentication-", "authorization-")


def desired_corefile(layout: Layout, *, kubeconfig: Path) -> str:
    """Names of the cluster and of this machine; every other name does not exist."""
    common = f"    bind {layout.host_ip}\n    errors\n"
    return f"""cluster.local:{DNS_PORT} in-addr.arpa:{DNS_PORT} {{
{common}    ready {layout.host_ip}:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 2
    }}
}}
{HOST_NAME}:{DNS_PORT} {{
{common}    hosts {{
        {layout.host_ip} {HOST_NAME}
    }}
}}
.:{DNS_PORT} {{
{common}    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def publish_dns(api: Api, layout: Layout) -> None:
    """The Service `kube-dns` in front of CoreDNS, and the rights that it needs."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    api.create(
        f"{rbac}/clusterroles",
        {
            "metadata": {"name": "system:coredns"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["endpoints", "services", "pods", "namespaces"],
                    "verbs": ["list", "watch"],
                },
                {
                    "apiGroups": ["discovery.k8s.io"],
                    "resources": ["endpointslices"],
                    "verbs": ["list", "watch"],
                },
            ],
        },
    )
    api.create(
        f"{rbac}/clusterrolebindings",
        {
            "metadata": {"name": "system:coredns"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:coredns",
            },
            "subjects": [{"kind": "User", "name": "system:coredns"}],
        },
    )
    ports = [("dns", "UDP"), ("dns-tcp", "TCP")]
    api.create(
        "/api/v1/namespaces/kube-system/services",
        {
            "metadata": {"name": "kube-dns", "labels": {"k8s-app": "kube-dns"}},
            "spec": {
                "clusterIP": layout.dns_ip,
                "ports": [
                    {"name": name, "protocol": protocol, "port": 53, "targetPort": DNS_PORT}
                    for name, protocol in ports
                ],
            },
        },
    )
    api.create(
        "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices",
        {
            "metadata": {
                "name": "kube-dns",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [layout.host_ip], "conditions": {"ready": True}}],
            "ports": [
                {"name": name, "protocol": protocol, "port": DNS_PORT} for name, protocol in ports
            ],
        },
    )
