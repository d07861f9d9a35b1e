"""Keeping off lost nodes changes nothing else in the manifest."""

from __future__ import annotations

from typing import Any

from rtj_operator.core.avoid import keep_off, shun

DEMANDS = [{"key": "metadata.name", "operator": "NotIn", "values": [n]} for n in ("n1", "n2")]
KIND = "requiredDuringSchedulingIgnoredDuringExecution"
WISH = "preferredDuringSchedulingIgnoredDuringExecution"


def terms_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return manifest["spec"]["affinity"]["nodeAffinity"][KIND]["nodeSelectorTerms"]


def test_nothing_to_avoid_changes_nothing() -> None:
    manifest = {"spec": {"containers": []}}
    assert keep_off(manifest, ()) is manifest


def test_a_plain_pod_gets_one_term() -> None:
    manifest = {"spec": {"containers": []}}
    assert terms_of(keep_off(manifest, ["n2", "n1"])) == [{"matchFields": DEMANDS}]
    assert manifest == {"spec": {"containers": []}}, "the caller's manifest is left alone"


def test_each_of_the_users_alternatives_keeps_off_too() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    field = {"key": "metadata.name", "operator": "In", "values": ["n3"]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [zone]}}]
    node = {
        KIND: {"nodeSelectorTerms": [{"matchExpressions": [zone]}, {"matchFields": [field]}]},
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    manifest = {"spec": {"affinity": {"nodeAffinity": node, "podAffinity": {"x": 1}}}}
    made = keep_off(manifest, ["n1", "n2"])
    assert terms_of(made) == [
        {"matchExpressions": [zone], "matchFields": DEMANDS},
        {"matchFields": [field, *DEMANDS]},
    ]
    assert made["spec"]["affinity"]["podAffinity"] == {"x": 1}
    kept = made["spec"]["affinity"]["nodeAffinity"]
    assert kept["preferredDuringSchedulingIgnoredDuringExecution"] == preferred


def test_to_shun_is_only_a_wish_beside_the_users_own() -> None:
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    own = {"weight": 1, "preference": zone}
    node = {WISH: [own], KIND: {"nodeSelectorTerms": [zone]}}
    made = shun({"spec": {"affinity": {"nodeAffinity": node}}}, ["n2", "n1"])
    kept = made["spec"]["affinity"]["nodeAffinity"]
    assert kept[WISH] == [own, {"weight": 100, "preference": {"matchFields": DEMANDS}}]
    assert kept[KIND] == {"nodeSelectorTerms": [zone]}
    assert node[WISH] == [own], "the caller's manifest is left alone"


def test_none_to_shun_changes_nothing() -> None:
    manifest = {"spec": {"containers": []}}
    assert shun(manifest, ()) is manifest
