"""Real FUSE mounts that lack what those of object stores and of some volumes lack (Debian's bindfs makes them)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import debian

from .conftest import Programs
from .stack import Host

ON = ("embedded",)

Through = tuple[str, ...]

SCRIPT = """
tool=$1 libraries=$2 options=$3 back=$4 at=$5
shift 5
LD_LIBRARY_PATH=$libraries "$tool" $options "$back" "$at" || exit 99
"$@"
result=$?
umount "$at"
exit $result
"""


@pytest.fixture
def limited(tmp_path: Path) -> Callable[..., tuple[Path, Through]]:
    """Makes a mount point, and the command through which a program sees the mount there: `limited("--chmod-deny")`."""
    prefix = ("unshare", "--mount", "--propagation=private")
    probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    if os.geteuid() != 0 or probe.returncode or not Path("/dev/fuse").exists():
        pytest.skip("Only root with the right to mount, and with /dev/fuse, can run this test.")
    tool = debian.program("bindfs", "bindfs", "libfuse2")
    libraries = debian.environ(tool).get("LD_LIBRARY_PATH", "")

    def make(*options: str) -> tuple[Path, Through]:
        back, at = tmp_path / "back", tmp_path / "mount"
        for folder in (back, at):
            folder.mkdir()
        words = ("sh", "-c", SCRIPT, "sh", tool, libraries, " ".join(options), str(back), str(at))
        return at, (*prefix, *words)

    return make


def test_a_model_on_a_mount_without_memory_maps(
    mxr: Host,
    model: Path,
    published: dict[str, str],
    gpu: tuple[str, ...],
    limited: Callable[..., tuple[Path, Through]],
    tmp_path: Path,
) -> None:
    at, through = limited("-o", "direct_io")
    (tmp_path / "back" / "m.onnx").write_bytes(model.read_bytes())
    there = at / "m.onnx"
    assert mxr("identity", there, through=through).out == mxr("identity", model).out
    assert mxr("fetch", there, *gpu, "--json", through=through).json["id"] == published["id"]
    mxr("freeze", there, "--batch", "4", "-o", tmp_path / "frozen", through=through)
    assert (tmp_path / "frozen" / "m.b4.onnx").is_file()


def test_an_output_on_a_mount_that_refuses_chmod_or_rename(
    mxr: Host,
    model: Path,
    published: dict[str, str],
    programs: Programs,
    gpu: tuple[str, ...],
    limited: Callable[..., tuple[Path, Through]],
    tmp_path: Path,
) -> None:
    at, through = limited("--chmod-deny", "--chown-deny")
    said = mxr("fetch", model, *gpu, "-o", f"{at}/out/", "--json", through=through).json
    assert (tmp_path / "back" / "out" / Path(said["path"]).name).read_bytes() == programs.gfx908.read_bytes()
    refusing = tuple(word.replace("--chmod-deny --chown-deny", "--rename-deny") for word in through)
    error = mxr("fetch", model, *gpu, "-o", f"{at}/another/", "--json", through=refusing, expect=7).error
    assert str(at) in error["detail"] and not error["retry"], "no pipeline repeats it"


def test_a_cache_and_an_output_with_fixed_modes(
    mxr: Host,
    model: Path,
    published: dict[str, str],
    programs: Programs,
    gpu: tuple[str, ...],
    limited: Callable[..., tuple[Path, Through]],
    tmp_path: Path,
) -> None:
    """Who else writes there cannot be seen: nothing is believed of such a cache, and nothing is needed from it."""
    at, through = limited("--perms=0777", "--chmod-ignore")
    env = {"MXR_CACHE_DIR": f"{at}/cache"}
    error = mxr("fetch", model, *gpu, "--json", env=env, through=through, expect=7).error
    assert "mode 0777" in error["detail"] and "fixed modes" in error["hint"]
    for folder in (f"{at}/out/", f"{tmp_path}/out/"):
        said = mxr("fetch", model, *gpu, "-o", folder, "--json", env=env, through=through).json
        assert "fixed modes" in said["warnings"][0] and said["source"] == "registry"
    assert (tmp_path / "back" / "out" / Path(said["path"]).name).read_bytes() == programs.gfx908.read_bytes()
    assert Path(said["path"]).read_bytes() == programs.gfx908.read_bytes()
    assert not [path for path in tmp_path.rglob("*") if ".mxr-partial-" in path.name]
