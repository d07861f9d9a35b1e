"""Addresses and names of clusters: nothing outside the benchmarking range, nothing shared."""

import ipaddress
import itertools

import pytest

from devcluster.layout import MAX_NODES, SLOTS, Layout, checked_name

ALLOWED = ipaddress.ip_network("198.18.0.0/15")


def addresses(layout: Layout) -> list[str]:
    nodes = [layout.node(index) for index in range(1, MAX_NODES + 1)]
    return [layout.host_ip, layout.dns_ip, layout.api_service_ip, *(node.ip for node in nodes)]


@pytest.mark.parametrize("slot", range(SLOTS))
def test_every_address_is_of_the_benchmarking_range_and_of_its_own_network(slot: int) -> None:
    layout = Layout("x", slot)
    assert all(ipaddress.ip_address(address) in ALLOWED for address in addresses(layout))
    services = ipaddress.ip_network(layout.service_cidr)
    assert ipaddress.ip_address(layout.dns_ip) in services
    assert next(services.hosts()) == ipaddress.ip_address(layout.api_service_ip)
    pods = [ipaddress.ip_network(layout.node(i).pod_cidr) for i in range(1, MAX_NODES + 1)]
    networks = [*pods, ipaddress.ip_network(layout.node_cidr), services]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(networks, 2))
    cluster = ipaddress.ip_network(layout.cluster_cidr)
    assert all(network.subnet_of(cluster) for network in pods)


def test_clusters_share_no_address() -> None:
    networks = []
    for slot in range(SLOTS):
        layout = Layout("x", slot)
        networks += [layout.cluster_cidr, layout.service_cidr]
    parsed = [ipaddress.ip_network(network) for network in networks]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(parsed, 2))


def test_names_fit_the_kernel() -> None:
    layout = Layout(checked_name("a" * 20), SLOTS - 1)
    node = layout.node(MAX_NODES)
    assert len(layout.interface) <= 15  # IFNAMSIZ
    assert len(node.port) <= 15
    assert len(str(node.containerd_socket) + ".ttrpc") <= 107  # sun_path


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a.b", "a/b", "a" * 21, "a b", "a\n", ".."])
def test_a_bad_name_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(ValueError, match=r"--name .*use 1 to 20 of a-z"):
        checked_name(name)
