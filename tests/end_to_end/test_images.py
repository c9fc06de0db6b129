"""Container images of programs: what skopeo, podman and tar find in them, and what `mxr check --oci` says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from doubles.migraphx import programs as doubles
from doubles.ort_migraphx import Judge
from harness.programs import Program
from servers import debian
from servers.nginx import free_port

from .conftest import Programs
from .stack import Host, Registry, eventually
from .test_static import answers
from .test_trust import key

ON = ("embedded",)

Hosts = Callable[..., Host]


def run(*words: object) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def gpus(gpu: tuple[str, ...]) -> dict[str, list[str]]:
    """The options of each GPU."""
    other = ["gfx942:sramecc+:xnack-" if word.startswith("gfx908") else word for word in gpu]
    return {"gfx908": [*gpu], "gfx942": other}


@pytest.fixture
def lock(mxr: Host, model: Path, programs: Programs, gpus: dict[str, list[str]]) -> Path:
    """The lock of programs for two GPUs."""
    for each in (programs.gfx908, programs.gfx942):
        mxr("push", each, "--model", model, "--rocm", "7.2", "--for", "python")
    mxr("lock", model, *gpus["gfx908"], "-o", mxr.home / "mxr.lock")
    mxr("lock", model, *gpus["gfx942"], "-o", mxr.home / "mxr.lock", "--add")
    return mxr.home / "mxr.lock"


def test_images_hold_what_a_fetch_writes(
    mxr: Host, host: Hosts, lock: Path, gpus: dict[str, list[str]], tmp_path: Path
) -> None:
    debian.installed("skopeo")
    said = mxr("export", "--oci", "images", lock, "--json").json
    layout = mxr.home / "images"
    assert [each["tag"] for each in said["images"]] == ["gfx908", "gfx942"]
    # The same bytes again, by another host.
    again = host("again")
    again("export", "--oci", "images", lock)
    assert tree(layout) == tree(again.home / "images")
    mxr("export", "--oci", "images", lock)
    assert tree(layout) == tree(again.home / "images")
    for each in said["images"]:
        tag = each["tag"]
        mxr("fetch", "--locked", lock, "--arch", tag, "-o", f"plain-{tag}/")
        found = json.loads(run("skopeo", "inspect", f"oci:{layout}:{tag}"))
        assert found["Digest"] == each["digest"]
        labels = found["Labels"]
        assert labels["mxr.dev/gfx"] == tag and labels["mxr.dev/migraphx"] == "2.15"
        assert json.loads(labels["cache.migraphx.image/summary"])["targets"][0]["arch"] == tag
        assert labels["io.kserve.km/cache-mount-subpath"] == "models"
        # As a consumer's node unpacks it.
        copied = tmp_path / f"copied-{tag}"
        run("skopeo", "copy", "--preserve-digests", f"oci:{layout}:{tag}", f"dir:{copied}")
        manifest = json.loads((copied / "manifest.json").read_text())
        assert "sha256:" + sha256((copied / "manifest.json").read_bytes()).hexdigest() == each["digest"]
        for layer in manifest["layers"]:
            with tarfile.open(copied / layer["digest"].partition(":")[2]) as tar:
                assert {(member.mtime, member.uid, member.gid) for member in tar} == {(0, 0, 0)}
                tar.extractall(tmp_path / f"root-{tag}", filter="data")
        assert tree(tmp_path / f"root-{tag}" / "models") == tree(mxr.home / f"plain-{tag}")
    assert mxr("check", "--oci", "images", "--rocm", "7.2", "--json").json["ok"]


def test_a_registry_of_images_keeps_the_digests(registry: Registry, mxr: Host, lock: Path, tmp_path: Path) -> None:
    debian.installed("skopeo", "docker-registry")
    said = mxr("export", "--oci", "images", lock, "--json").json
    digest, port = said["images"][0]["digest"], free_port()
    config = {"version": 0.1, "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}}}
    config["http"] = {"addr": f"127.0.0.1:{port}"}
    (tmp_path / "config.yml").write_text(json.dumps(config))
    server = Program(
        ["docker-registry", "serve", str(tmp_path / "config.yml")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
    )
    try:
        eventually(lambda: answers(port))
        there = f"docker://127.0.0.1:{port}/models/convrelu"
        copy = ("skopeo", "copy", "--preserve-digests")
        tags = ("gfx908", digest.replace(":", "-") + ".mxr")
        for tag in tags:
            run(*copy, "--dest-tls-verify=false", f"oci:{mxr.home}/images:{tag}", f"{there}:{tag}")
        found = json.loads(run("skopeo", "inspect", "--tls-verify=false", f"{there}:gfx908"))
        assert found["Digest"] == digest
        for tag in tags:
            run(*copy, "--src-tls-verify=false", f"{there}:{tag}", f"oci:{tmp_path}/pulled:{tag}")
        (fingerprint,) = (each["id"] for each in key(registry, "ls")["keys"])
        mxr("trust", "add", "--fingerprint", fingerprint)
        mxr("check", "--oci", tmp_path / "pulled", "--arch", "gfx908", "--rocm", "7.2", "--migraphx", "2.15")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def test_a_runtime_mounts_them(mxr: Host, lock: Path) -> None:
    debian.installed("podman")
    mxr("export", "--oci", "images", lock)
    mxr("fetch", "--locked", lock, "--arch", "gfx942", "-o", "plain/")
    # Podman allows 50 characters.
    with tempfile.TemporaryDirectory(prefix="mxr-", dir="/tmp") as home:
        podman = ("podman", "--root", f"{home}/r", "--runroot", f"{home}/run", "--storage-driver", "vfs")
        image = run(*podman, "pull", "-q", f"oci:{mxr.home}/images:gfx942").strip()
        mounted = Path(run(*podman, "image", "mount", image).strip())
        try:
            assert tree(mounted / "models") == tree(mxr.home / "plain")
        finally:
            run(*podman, "image", "unmount", image)


def test_an_image_of_onnx_runtime_names_its_folder(
    mxr: Host, model: Path, gpus: dict[str, list[str]], judge: Judge, tmp_path: Path
) -> None:
    debian.installed("skopeo")
    frozen = Path(mxr("freeze", model, "--batch", "4", "-o", "frozen").out.strip())
    flags = {"kind": "gpu", "arch": "gfx908:sramecc+:xnack-", "offload_copy": False}
    made = (doubles.read(str(mxr.home / frozen), {}), flags, {"file_version": 7, "migraphx": "2.15.0"})
    (tmp_path / "program.mxr").write_bytes(doubles.write(*made))
    mxr("push", tmp_path / "program.mxr", "--model", frozen, "--rocm", "7.2", "--for", "ort")
    words = ["ort" if word == "python" else word for word in gpus["gfx908"]]
    words[words.index("--batch") : words.index("--batch") + 2] = []
    mxr("lock", frozen, *words, "-o", "ort.lock")
    ort = ("--ort", judge.provider_library, "--ort-python", judge.python)
    said = mxr("export", "--oci", "images", "ort.lock", *ort, "--json").json
    (image,) = said["images"]
    assert any(line.startswith("ORT_MIGRAPHX_MODEL_CACHE_PATH=/models/convrelu") for line in image["settings"])
    labels = json.loads(run("skopeo", "inspect", f"oci:{mxr.home}/images:gfx908"))["Labels"]
    variable, _, path = labels["io.kserve.km/cache-root-env"].partition("=")
    assert variable == "ORT_MIGRAPHX_MODEL_CACHE_PATH"
    assert path == f"/{labels['io.kserve.km/cache-mount-subpath']}"


def test_programs_that_need_no_gpu(
    mxr: Host, lock: Path, convnet: Path, programs: Programs, gpus: dict[str, list[str]]
) -> None:
    facts = ("--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--precision", "fp16", "--for", "python")
    mxr("push", programs.ref, "--model", convnet, *facts)
    mxr("lock", convnet, *facts, "-o", "ref.lock")
    said = mxr("export", "--oci", "alone", "ref.lock", "--json").json
    assert [each["tag"] for each in said["images"]] == ["ref"]
    assert mxr("check", "--oci", "alone").out.startswith("  ok  ref  1 program")
    # Beside others, it is in each image.
    mxr("lock", convnet, *facts, "-o", lock, "--add")
    mxr("export", "--oci", "images", lock)
    found = mxr("check", "--oci", "images", "--json").json["images"]
    assert [(each["tag"], len(each["files"])) for each in found] == [("gfx908", 2), ("gfx942", 2)]


def test_one_push_reaches_every_folder(
    registry: Registry, mxr: Host, host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    """By `mxr fetch`, curl, an image that skopeo copies, a layer of it, and files without a registry."""
    debian.installed("skopeo", "curl")
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    wanted = sha256(programs.gfx908.read_bytes()).hexdigest()
    found: dict[str, str] = {}

    def add(way: str, path: Path) -> None:
        found[way] = sha256(path.read_bytes()).hexdigest()

    mxr("fetch", model, *gpu, "-o", "fetched.mxr")
    add("fetch", mxr.home / "fetched.mxr")
    mxr("lock", model, *gpu)
    id = json.loads((mxr.home / "mxr.lock").read_text())["entries"][0]["id"]
    (tmp_path / "header").write_text(f"Authorization: Bearer {mxr.environ['MXR_TOKEN']}")
    url = f"{registry.url}/v1/artifacts/{id}/files/model.mxr"
    run("curl", "-sSf", "-H", f"@{tmp_path}/header", "-o", tmp_path / "curl.mxr", url)
    add("curl", tmp_path / "curl.mxr")
    (digest,) = (each["digest"] for each in mxr("export", "--oci", "images", "mxr.lock", "--json").json["images"])
    run("skopeo", "copy", "--preserve-digests", f"oci:{mxr.home}/images:gfx908", f"dir:{tmp_path}/copied")
    assert sha256((tmp_path / "copied" / "manifest.json").read_bytes()).hexdigest() == digest.partition(":")[2]
    layout = mxr.home / "images" / "blobs" / "sha256"
    manifest = json.loads((layout / digest.partition(":")[2]).read_text())
    for way, folder in (("skopeo", tmp_path / "copied"), ("layer", layout)):
        for layer in manifest["layers"]:
            run("tar", "-C", tmp_path, "-xf", folder / layer["digest"].partition(":")[2])
        (program,) = (tmp_path / "models").glob("*.mxr")
        add(way, program)
        program.unlink()
    mxr("export", "--static", tmp_path / "site", "mxr.lock")
    plain = host("plain", f"file://{tmp_path}/site")
    plain("fetch", model, *gpu, "-o", "static.mxr")
    add("static", plain.home / "static.mxr")
    (blob,) = (path for path in (tmp_path / "site" / "blobs").rglob(wanted))
    add("static file", blob)
    assert found == dict.fromkeys(("fetch", "curl", "skopeo", "layer", "static", "static file"), wanted)


class TestCheck:
    @pytest.fixture
    def layout(self, mxr: Host, lock: Path) -> Path:
        mxr("export", "--oci", "images", lock)
        return mxr.home / "images"

    def row(self, layout: Path, tag: str) -> dict[str, Any]:
        rows = json.loads((layout / "index.json").read_text())["manifests"]
        return next(row for row in rows if row["annotations"]["org.opencontainers.image.ref.name"] == tag)

    def blob(self, layout: Path, descriptor: dict[str, Any]) -> Path:
        return layout / "blobs" / "sha256" / descriptor["digest"].partition(":")[2]

    def test_each_image_is_judged_for_its_gpu(self, mxr: Host, layout: Path) -> None:
        assert mxr("check", "--oci", layout).out.count("  ok  ") == 2
        found = mxr("check", "--oci", layout, "--arch", "gfx942", "--json").json["images"]
        assert [each["tag"] for each in found] == ["gfx942"]
        assert "needs 7.2" in mxr("check", "--oci", layout, "--rocm", "6.4", expect=6).err
        assert "no image for gfx1100" in mxr("check", "--oci", layout, "--arch", "gfx1100", expect=2).err
        # An image under the wrong name.
        index = layout / "index.json"
        swapped = (
            index.read_text().replace('"gfx908"', '"x"').replace('"gfx942"', '"gfx908"').replace('"x"', '"gfx942"')
        )
        index.write_text(swapped)
        assert mxr("check", "--oci", layout).out.count("  ok  ") == 2, "the label of the image counts"

    def test_a_quarantined_program_is_refused(self, registry: Registry, mxr: Host, layout: Path) -> None:
        id = json.loads((mxr.home / "mxr.lock").read_text())["entries"][0]["id"]
        registry.ask("PUT", f"/v1/artifacts/{id}/recall", {"word": "quarantined", "reason": "wrong answers"})
        mxr("fetch", "--locked", mxr.home / "mxr.lock", env={"MXR_MAX_AGE": "0"}, expect=6)
        said = mxr("check", "--oci", layout, expect=6)
        assert "wrong answers" in said.err and said.out.count("  ok  ") == 1
        assert "quarantined" in mxr("export", "--oci", "again", mxr.home / "mxr.lock", expect=6).err
        assert not (mxr.home / "again" / "index.json").exists()

    def test_signatures_are_required_where_the_user_says_so(
        self, registry: Registry, mxr: Host, host: Hosts, layout: Path, programs: Programs, tmp_path: Path
    ) -> None:
        (fingerprint,) = (each["id"] for each in key(registry, "ls")["keys"])
        strict = host("strict")
        strict("trust", "add", "--fingerprint", fingerprint)
        strict.environ["MXR_REGISTRY"] = "http://127.0.0.1:1"
        strict("check", "--oci", layout, env={"MXR_REGISTRY": registry.url})
        # A program beside those that were signed, in a layer of its own.
        row = self.row(layout, "gfx942")
        manifest = json.loads(self.blob(layout, row).read_text())
        good = (layout / "index.json").read_bytes()
        with tarfile.open(tmp_path / "more.tar", "w") as tar:
            tar.add(programs.gfx942, "models/more.mxr")
        manifest["layers"].append(dict(manifest["layers"][0]))
        self.replace_layer(layout, row, manifest, tmp_path / "more.tar", at=-1)
        mxr("check", "--oci", layout)
        said = strict("check", "--oci", layout, env={"MXR_REGISTRY": registry.url}, expect=6)
        assert "nothing is signed of more.mxr" in said.err
        (layout / "index.json").write_bytes(good)
        # Without what was signed, as after a copy of the image alone.
        index = json.loads((layout / "index.json").read_text())
        index["manifests"] = [row for row in index["manifests"] if "artifactType" not in row]
        (layout / "index.json").write_text(json.dumps(index))
        said = strict("check", "--oci", layout, env={"MXR_REGISTRY": registry.url}, expect=6)
        assert "nothing is signed of" in said.err
        mxr("check", "--oci", layout)

    @pytest.mark.parametrize(
        "what", ["layer", "manifest", "config", "index", "gone", "gzip", "link", "dots", "outside", "empty"]
    )
    def test_bytes_that_were_changed(self, mxr: Host, layout: Path, tmp_path: Path, what: str) -> None:
        row = self.row(layout, "gfx908")
        manifest = json.loads(self.blob(layout, row).read_text())
        layer = self.blob(layout, manifest["layers"][0])
        paths = {
            "layer": layer,
            "manifest": self.blob(layout, row),
            "config": self.blob(layout, manifest["config"]),
            "index": layout / "index.json",
        }
        if what in paths:
            data = paths[what].read_bytes()
            half = len(data) // 2
            paths[what].write_bytes(data[:half] + (b"?" + data[half + 1 :] if what != "index" else b""))
        elif what == "gone":
            layer.unlink()
        else:
            hostile = tmp_path / "hostile.tar"
            with tarfile.open(hostile, "w:gz" if what == "gzip" else "w") as tar:
                info = tarfile.TarInfo({"dots": "models/../../x", "outside": "etc/passwd"}.get(what, "models/x"))
                if what == "link":
                    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(info)
            self.replace_layer(layout, row, manifest, hostile, gzip=what == "gzip")
        said = mxr("check", "--oci", layout, expect=65)
        assert "Traceback" not in said.err

    def replace_layer(
        self,
        layout: Path,
        row: dict[str, Any],
        manifest: dict[str, Any],
        path: Path,
        *,
        gzip: bool = False,
        at: int = 0,
    ) -> None:
        """A layout that is in order, but for a layer."""
        blobs = layout / "blobs" / "sha256"

        def add(data: bytes) -> dict[str, Any]:
            digest = sha256(data).hexdigest()
            (blobs / digest).write_bytes(data)
            return {"digest": f"sha256:{digest}", "size": len(data)}

        manifest["layers"][at] |= add(path.read_bytes())
        manifest["layers"][at]["mediaType"] += "+gzip" if gzip else ""
        index = json.loads((layout / "index.json").read_text())
        for each in index["manifests"]:
            if each["digest"] == row["digest"]:
                each |= add(json.dumps(manifest).encode())
        (layout / "index.json").write_text(json.dumps(index))


def test_what_it_refuses(mxr: Host, lock: Path, programs: Programs, model: Path) -> None:
    id = json.loads(lock.read_text())["entries"][0]["id"]
    for words in ((id,), (lock, id), (), (lock, "--static", "x"), (lock, "-o", "x"), (lock, "--all")):
        mxr("export", "--oci", "images", *words, expect=2)
    (mxr.home / "photos").mkdir()
    (mxr.home / "photos" / "cat.jpg").write_text("precious")
    assert "other files" in mxr("export", "--oci", "photos", lock, expect=7).err
    assert "no OCI image layout" in mxr("check", "--oci", "photos", expect=2).err
    # Another lock replaces the tags that it has, and what nothing names any more.
    mxr("export", "--oci", "images", lock)
    before = {*(mxr.home / "images" / "blobs" / "sha256").iterdir()}
    ids = {entry["key"]["arch"]: entry for entry in json.loads(lock.read_text())["entries"]}
    single = json.loads(lock.read_text()) | {"entries": [ids["gfx942"]]}
    (mxr.home / "one.lock").write_text(json.dumps(single))
    mxr("export", "--oci", "images", "one.lock")
    assert {*(mxr.home / "images" / "blobs" / "sha256").iterdir()} == before
    assert mxr("check", "--oci", "images").out.count("  ok  ") == 2
