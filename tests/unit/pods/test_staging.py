"""TMPDIR moves onto the checkpoint volume where the framework stages there, and nowhere else."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from kit.specs import a_pod, a_spec, config_of, trainer_of
from rtj_api.wire import SidecarConfig
from rtj_sidecar.config import Site
from rtj_sidecar.staging import has_staging, make_staging

EMPTY = {"volumes": [{"name": "data", "emptyDir": {}}]}
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}]}
MOUNT = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}


def temporary(**options: Any) -> str | None:
    env = trainer_of(a_pod(a_spec(**options)))["env"]
    return {entry["name"]: entry.get("value") for entry in env}.get("TMPDIR")


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"checkpoint": {"layout": "lightning"}}, "/checkpoints/.rtj/tmp"),
        ({"checkpoint": {"layout": "lightning", "path": "/checkpoints/"}}, "/checkpoints/.rtj/tmp"),
        (
            {"checkpoint": {"layout": "nemo", "path": "/data/x"}, "pod": EMPTY, "trainer": MOUNT},
            "/data/x/.rtj/tmp",
        ),
        ({"checkpoint": {"layout": "auto"}}, None),
        ({"checkpoint": {"layout": "torch"}}, None),
        # Of several pods: what one stages there the sidecar of another would remove.
        (
            {
                "checkpoint": {"layout": "lightning", "path": "/data"},
                "pod": CLAIM,
                "trainer": MOUNT,
            },
            None,
        ),
        ({"checkpoint": {"layout": "lightning", "path": "/checkpoints/" + "x" * 60}}, None),
        (
            {
                "checkpoint": {"layout": "lightning"},
                "trainer": {"env": [{"name": "TMPDIR", "value": "/scratch"}]},
            },
            "/scratch",
        ),
        (
            {
                "checkpoint": {"layout": "lightning"},
                "trainer": {"envFrom": [{"configMapRef": {"name": "may-set-it"}}]},
            },
            None,
        ),
    ],
)
def test_where_the_trainers_temporary_files_go(options: dict[str, Any], place: str | None) -> None:
    assert temporary(**options) == place


def a_site(path: Path, **config: Any) -> Site:
    told = config_of(a_pod(a_spec())) | {"path": str(path)}
    told = SidecarConfig.model_validate(told | config)
    return Site(config=told, pod_uid="u", pod_name="p", root=path, directive=path / "directive")


def test_the_sidecar_makes_it_for_whoever_has_it_and_never_where_others_write(
    tmp_path: Path,
) -> None:
    assert has_staging(a_site(tmp_path, layout="lightning"))
    assert not has_staging(a_site(tmp_path, layout="auto"))
    assert not has_staging(a_site(tmp_path, layout="lightning", sharedDirectory=True))
    assert not has_staging(a_site(tmp_path, layout="lightning", fencedDirectory=True))


def test_it_is_empty_before_each_start_and_open_to_any_user(tmp_path: Path) -> None:
    for _ in range(2):
        make_staging(tmp_path)
        place = tmp_path / ".rtj" / "tmp"
        assert os.listdir(place) == []
        assert stat.S_IMODE(place.stat().st_mode) == 0o1777
        (place / "tmp0x1").mkdir()
        (place / "tmp0x1" / "half.ckpt").write_bytes(b"of a save that nobody will finish")
    assert sorted(os.listdir(tmp_path / ".rtj")) == ["tmp"]


def test_a_link_in_its_place_is_taken_away_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("stays")
    (tmp_path / ".rtj").mkdir()
    (tmp_path / ".rtj" / "tmp").symlink_to(precious)
    make_staging(tmp_path)
    assert (precious / "file").read_text() == "stays"
    assert not (tmp_path / ".rtj" / "tmp").is_symlink()
    make_staging(tmp_path)
    assert (precious / "file").read_text() == "stays"
