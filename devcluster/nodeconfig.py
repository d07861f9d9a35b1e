"""The configuration files of one node: containerd, CNI, kubelet, kube-proxy. Pure text."""

from __future__ import annotations

import json
from pathlib import Path

from devcluster.images import PAUSE_IMAGE
from devcluster.layout import Layout, NodeLayout

# What the kubelet would set for the whole machine (kubelet's setupKernelTunables). Each node
# sees a file with the wanted value in its place, so the machine's own settings stay.
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
# Host directories that a node sees its own version of; made if absent, removed by the last
# cluster that goes.
SHUTDOWN_SECONDS = 30  # for pods that are not critical, where their own grace is no shorter
OWN_DIRECTORIES = {"kubelet": Path("/var/lib/kubelet"), "log": Path("/var/log")}
CNI_CACHE = Path("/var/lib/cni")


def mount_points() -> list[Path]:
    return [*OWN_DIRECTORIES.values(), CNI_CACHE]


def desired_boot_script(node: NodeLayout, *, pause: Path) -> str:
    """Shell run by the node's first process in its new namespaces before it becomes `pause`.

    Mounts that it makes exist only there and vanish with the node, as in a reboot.
    """
    lines = [
        "mount --make-rslave /",
        "mount -t proc -o nosuid,nodev,noexec proc /proc",
        "mount -t tmpfs -o mode=755 tmpfs /run",
        f"mount -t tmpfs -o mode=755 tmpfs {CNI_CACHE}",
    ]
    for name, target in OWN_DIRECTORIES.items():
        lines.append(f"mount --bind {node.directory}/{name} {target}")
    for name in SYSCTLS:
        source = node.directory / "sysctl" / name.replace("/", ".")
        lines.append(f"mount --bind {source} /proc/sys/{name}")
    lines += [
        # Last, so that each mount above is a peer group of its own and none is doubled.
        "mount --make-rshared /",
        "mkdir -p /run/netns /run/lock",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables",
        f"echo {node.name} > /proc/sys/kernel/hostname",
        f"exec {pause}",
    ]
    return "\n".join(lines)


def desired_containerd(node: NodeLayout, *, cni_bin: Path, restrict_oom: bool) -> str:
    """`restrict_oom`: without CAP_SYS_RESOURCE runc may not lower oom_score_adj, and every
    sandbox would die with "can't get final child's PID from pipe: EOF"."""
    return f"""version = 2
root = "{node.directory}/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{node.containerd_socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = {str(restrict_oom).lower()}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_bin}"
    conf_dir = "{node.directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""


def desired_cni(node: NodeLayout) -> str:
    return json.dumps(
        {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "ipMasq": False,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        # On the node's /run: addresses of a dead node's pods are free again.
                        "dataDir": "/run/cni-ipam",
                        "ranges": [[{"subnet": node.pod_cidr}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        },
        indent=1,
    )


def desired_kubelet(node: NodeLayout, *, isolate_storage: bool) -> str:
    """`isolate_storage`: count ephemeral-storage; the kubelet cannot on an overlay root, whose
    device cadvisor does not see."""
    layout: Layout = node.cluster
    pki = layout.certificates
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": node.ip,
            "healthzBindAddress": "127.0.0.1",
            "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{pki}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{pki}/kubelet-{node.name}.crt",
            "tlsPrivateKeyFile": f"{pki}/kubelet-{node.name}.key",
            "clusterDomain": "cluster.local",
            "clusterDNS": [layout.dns_ip],
            "resolvConf": f"{node.directory}/resolv.conf",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{node.cgroup}",
            "failSwapOn": False,
            "failCgroupV1": False,
            "localStorageCapacityIsolation": isolate_storage,
            "maxPods": 250,
            "evictionHard": {
                "memory.available": "50Mi",
                "nodefs.available": "0%",
                "nodefs.inodesFree": "0%",
                "imagefs.available": "0%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "registerNode": True,
            "shutdownGracePeriod": f"{SHUTDOWN_SECONDS + 5}s",
            "shutdownGracePeriodCriticalPods": "5s",
            "volumePluginDir": f"{node.directory}/volume-plugins",
        },
        indent=1,
    )


def desired_kube_proxy(node: NodeLayout) -> str:
    layout = node.cluster
    return json.dumps(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "bindAddress": node.ip,
            "healthzBindAddress": f"{node.ip}:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "clientConnection": {"kubeconfig": f"{layout.certificates}/proxy.kubeconfig"},
            "clusterCIDR": layout.cluster_cidr,
            "hostnameOverride": node.name,
            "mode": "iptables",
            # The size of the conntrack table is the machine's and stays as it is.
            "conntrack": {"maxPerCore": 0, "min": 0},
        },
        indent=1,
    )


def files(
    node: NodeLayout, *, cni_bin: Path, restrict_oom: bool, isolate_storage: bool
) -> dict[Path, str]:
    """Every file the node needs, by absolute path."""
    directory = node.directory
    texts = {
        directory / "containerd.toml": desired_containerd(
            node, cni_bin=cni_bin, restrict_oom=restrict_oom
        ),
        directory / "cni" / "10-pods.conflist": desired_cni(node),
        directory / "kubelet.json": desired_kubelet(node, isolate_storage=isolate_storage),
        directory / "kube-proxy.json": desired_kube_proxy(node),
        directory / "resolv.conf": f"nameserver {node.cluster.dns_ip}\n",
    }
    for name, value in SYSCTLS.items():
        texts[directory / "sysctl" / name.replace("/", ".")] = f"{value}\n"
    return texts
