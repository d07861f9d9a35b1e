"""Configuration files, requirements and the command line: pure texts."""

import json
import tomllib
from pathlib import Path

import pytest

from devcluster import binaries, cgroups, cli, nodeconfig, requirements
from devcluster.cluster import Cluster, ClusterError
from devcluster.controlplane import desired_corefile
from devcluster.layout import Layout

NODE = Layout("x", 2).node(3)
MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:3 - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
77 31 0:32 /docker/ab /mnt/other rw,relatime - cgroup cgroup rw,memory
"""


def test_hierarchies_are_whole_mounts_of_both_versions() -> None:
    found = {str(h.mount): h for h in cgroups.parse_mountinfo(MOUNTINFO)}
    assert set(found) == {
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/cpu,cpuacct",
        "/sys/fs/cgroup/systemd",
        "/sys/fs/cgroup/unified",
    }
    assert found["/sys/fs/cgroup/cpu,cpuacct"].controllers == {"cpu", "cpuacct"}
    assert [path for path, h in found.items() if h.unified] == ["/sys/fs/cgroup/unified"]


@pytest.mark.parametrize("restricted", [True, False])
def test_containerd_is_the_nodes_own(restricted: bool) -> None:
    text = nodeconfig.desired_containerd(
        NODE, cni_bin=Path("/usr/lib/cni"), restrict_oom=restricted
    )
    config = tomllib.loads(text)
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is restricted
    assert config["root"].startswith(str(NODE.directory))
    assert config["grpc"]["address"] == str(NODE.containerd_socket)
    assert cri["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": f"{NODE.directory}/cni"}


def test_the_kubelet_keeps_to_its_cgroup_and_default_lease() -> None:
    config = json.loads(nodeconfig.desired_kubelet(NODE, isolate_storage=True))
    assert config["cgroupRoot"] == f"/{NODE.cgroup}"
    assert config["localStorageCapacityIsolation"] is True
    assert config["authentication"]["anonymous"] == {"enabled": False}
    # A shorter lease would make the time to notice a lost node look better than it is.
    assert "nodeLeaseDurationSeconds" not in config


def test_pods_get_addresses_of_their_node_only() -> None:
    [bridge, _] = json.loads(nodeconfig.desired_cni(NODE))["plugins"]
    assert bridge["ipam"]["ranges"] == [[{"subnet": NODE.pod_cidr}]]
    assert bridge["ipMasq"] is False


def test_the_boot_script_shares_mounts_last() -> None:
    lines = nodeconfig.desired_boot_script(NODE, pause=Path("/cache/pause")).splitlines()
    assert lines[0] == "mount --make-rslave /"
    assert lines[-1] == "exec /cache/pause"
    mounts = [n for n, line in enumerate(lines) if line.startswith("mount")]
    assert lines[mounts[-1]] == "mount --make-rshared /"


def test_dns_answers_only_for_the_cluster_and_this_machine() -> None:
    text = desired_corefile(NODE.cluster, kubeconfig=Path("/k"))
    zones = [line.split(":")[0] for line in text.splitlines() if line and line[0] not in " }"]
    assert zones == ["cluster.local", "host.devcluster.internal", "."]
    assert "forward" not in text


def test_all_that_is_missing_is_said_at_once_with_the_package(monkeypatch) -> None:
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(requirements, "program", lambda name: None)
    monkeypatch.setattr(requirements, "cni_directory", lambda: None)
    monkeypatch.setattr(requirements, "go_program", lambda: None)
    text = requirements.explained(requirements.missing(build=True))
    for remedy in (
        "root: run it as root",
        "containerd, containerd-shim-runc-v2, ctr: apt-get install containerd",
        "runc: apt-get install runc",
        "apt-get install containernetworking-plugins",
        "iptables-restore: apt-get install iptables",
        "install Go 1.26 or newer",
    ):
        assert remedy in text
    assert "Go" not in requirements.explained(requirements.missing(build=False))


def test_an_old_go_is_named(monkeypatch) -> None:
    monkeypatch.setattr(requirements, "go_program", lambda: "/usr/bin/go")
    monkeypatch.setattr(requirements, "go_version", lambda go: (1, 19))
    [item] = requirements.missing_go()
    assert item.what == "Go 1.26 (/usr/bin/go is older)"


def test_the_cache_key_follows_everything_that_decides_a_binary(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(binaries, "GO_DIR", tmp_path)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "go.mod").write_text("module m\n")
    module = binaries.Module("m", {"p": "example/p"})
    keys = {binaries.key(module)}
    keys.add(binaries.key(binaries.Module("m", {"p": "example/q"})))
    keys.add(binaries.key(binaries.Module("m", {"p": "example/p"}, ldflags="-X a=b")))
    (tmp_path / "m" / "go.sum").write_text("x")
    keys.add(binaries.key(module))
    assert len(keys) == 4
    monkeypatch.setenv("DEVCLUSTER_CACHE", str(tmp_path / "cache"))
    assert not binaries.cached(module)
    binaries.directory(module).mkdir(parents=True)
    (binaries.directory(module) / "p").touch()
    assert binaries.cached(module)


def test_every_module_is_pinned() -> None:
    for module in binaries.MODULES:
        directory = binaries.GO_DIR / module.name
        text = (directory / "go.mod").read_text()
        assert "module devcluster/" in text
        if "require" in text:
            assert (directory / "go.sum").stat().st_size > 0
    kubernetes = (binaries.GO_DIR / "kubernetes" / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{binaries.KUBERNETES_VERSION}\n" in kubernetes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "--nodes", "0"], "'0': use 1 to 15"),
        (["up", "--nodes", "16"], "'16': use 1 to 15"),
        (["up", "--nodes", "two"], "'two': use 1 to 15"),
        (["up", "--gpus", "-1"], "use a whole number"),
        (["node", "stop", "node-1"], "invalid choice: 'stop'"),
        (["firewall", "open"], "invalid choice: 'open'"),
        ([], "required: COMMAND"),
    ],
)
def test_bad_arguments_are_named(arguments, message, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_arguments_pass_through_in_order() -> None:
    options = cli.parser().parse_args(
        ["up", "--kcm-arg=--a=1", "--kcm-arg=--b=2", "--apiserver-arg=--c"]
    )
    assert options.kcm_arg == ["--a=1", "--b=2"]
    assert options.apiserver_arg == ["--c"]
    assert options.audit is None


def test_a_cluster_that_is_not_there_is_an_error_with_the_remedy(tmp_path, capsys) -> None:
    cluster = Cluster("absent", state_root=tmp_path)
    for ask in (cluster.status, lambda: cluster.node_kill("node-1"), lambda: cluster.load()):
        with pytest.raises(ClusterError, match=r"there is no cluster absent .*up --name absent"):
            ask()
    assert cli.main(["status", "--name", "Bad"]) == 1
    assert "--name 'Bad'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --from ADDRESS and --port PORT"),
        (["--from", "198.18.1.300", "--port", "80"], "--from 198.18.1.300"),
        (["--from", "198.18.1.3", "--port", "70000"], "--port 70000: use 1 to 65535"),
    ],
)
def test_a_firewall_rule_without_sense_is_refused(arguments, message, capsys, monkeypatch) -> None:
    monkeypatch.setattr("devcluster.cluster.Cluster._parts", lambda _: None)
    assert cli.main(["firewall", "block", *arguments]) == 1
    assert message in capsys.readouterr().err
