"""Image archives: what is written can be read back, and what is no archive is refused."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from devcluster.images import (
    PAUSE_IMAGE,
    ImageError,
    full_name,
    read_archive,
    write_archive,
    write_pause_archive,
)


def tar_with(path: Path, files: dict[str, object]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            data = json.dumps(content).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def test_a_written_archive_names_its_parts_by_their_digests(tmp_path: Path) -> None:
    target = tmp_path / "x.tar"
    write_archive(target, name="localhost/x:1", layer=b"layer bytes", config={"Cmd": ["/x"]})
    with tarfile.open(target) as archive:
        members = {member.name: archive.extractfile(member).read() for member in archive}
    [image] = json.loads(members["manifest.json"])
    config = members[image["Config"]]
    assert image["Config"] == hashlib.sha256(config).hexdigest() + ".json"
    diff_ids = json.loads(config)["rootfs"]["diff_ids"]
    assert diff_ids == ["sha256:" + hashlib.sha256(members[image["Layers"][0]]).hexdigest()]
    assert read_archive(target).names == ("localhost/x:1",)


def test_a_layer_may_be_a_file_and_gives_the_same_bytes(tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    layer.write_bytes(b"z" * 3_000_000)
    first, second = tmp_path / "a.tar", tmp_path / "b.tar"
    write_archive(first, name="localhost/x:1", layer=layer, config={})
    write_archive(second, name="localhost/x:1", layer=layer.read_bytes(), config={})
    assert first.read_bytes() == second.read_bytes()


def test_the_digest_follows_the_content_not_the_file(tmp_path: Path) -> None:
    def digest(file: str, layer: bytes, name: str = "localhost/x:1") -> str:
        write_archive(tmp_path / file, name=name, layer=layer, config={})
        return read_archive(tmp_path / file).digest

    assert digest("a.tar", b"1") == digest("b.tar", b"1")
    assert digest("a.tar", b"1") != digest("b.tar", b"2")
    assert digest("a.tar", b"1") != digest("b.tar", b"1", "localhost/x:2")


def test_the_pause_image_holds_an_executable(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    write_pause_archive(tmp_path / "p.tar", program=program)
    archive = read_archive(tmp_path / "p.tar")
    assert archive.names == (PAUSE_IMAGE,)
    with tarfile.open(archive.path) as outer:
        layer = next(m for m in outer if m.name.endswith(".tar"))
        with tarfile.open(fileobj=outer.extractfile(layer)) as inner:
            assert inner.getmember("pause").mode == 0o755


def test_an_oci_archive_is_read_by_its_annotation(tmp_path: Path) -> None:
    name = {"org.opencontainers.image.ref.name": "localhost/x:3"}
    index = {"schemaVersion": 2, "manifests": [{"digest": "sha256:0", "annotations": name}]}
    path = tar_with(tmp_path / "oci.tar", {"oci-layout": {}, "index.json": index})
    assert read_archive(path).names == ("localhost/x:3",)


def test_what_cannot_be_loaded_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no such file"):
        read_archive(tmp_path / "absent.tar")
    (tmp_path / "text.tar").write_text("hello")
    with pytest.raises(ImageError, match=r"text.tar: not a readable image archive"):
        read_archive(tmp_path / "text.tar")
    with pytest.raises(ImageError, match=r"neither manifest.json nor index.json; make it with"):
        read_archive(tar_with(tmp_path / "other.tar", {"a": 1}))
    nameless = {"schemaVersion": 2, "manifests": [{"digest": "sha256:0"}]}
    with pytest.raises(ImageError, match="has no name; give it one"):
        read_archive(tar_with(tmp_path / "nameless.tar", {"index.json": nameless}))
    with pytest.raises(ImageError, match="has no name"):
        read_archive(tar_with(tmp_path / "d.tar", {"manifest.json": [{"RepoTags": None}]}))


@pytest.mark.parametrize("table", [{"manifest.json": {"a": 1}}, {"index.json": [1]}])
def test_a_table_of_the_wrong_form_is_refused(tmp_path: Path, table: dict[str, object]) -> None:
    with pytest.raises(ImageError, match="not a readable image archive"):
        read_archive(tar_with(tmp_path / "wrong.tar", table))


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "x.tar"
    write_archive(target, name="localhost/x:1", layer=b"z" * 100_000, config={})
    target.write_bytes(target.read_bytes()[:50_000])
    with pytest.raises(ImageError, match="not a readable image archive"):
        read_archive(target)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1", "docker.io/library/busybox:1"),
        ("org/app", "docker.io/org/app:latest"),
        ("localhost/app:2", "localhost/app:2"),
        ("reg.example:5000/app", "reg.example:5000/app:latest"),
        ("reg.example/app@sha256:ab", "reg.example/app@sha256:ab"),
    ],
)
def test_names_are_completed_as_containerd_does(short: str, full: str) -> None:
    assert full_name(short) == full
