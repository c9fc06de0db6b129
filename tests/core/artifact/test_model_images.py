"""Models in images that are mounted one after the other at one place: equal stamps, other bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from servers.debian import environ, program
from servers.mounts import in_own_namespace

from mxr.artifact.model_files import model_identity

pytestmark = pytest.mark.process

STAMP = 1_600_000_000
"""What a reproducible build gives to all files."""

SCRIPT = """
import fcntl, json, subprocess, sys
from pathlib import Path
from mxr.artifact.model_files import model_identity
from mxr.util.hashing import FileStamp, StatMemo, sha256_file, sha256_memoised
folder, kind, above = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "overlay"
mount, memo, rows = folder / "mount", StatMemo(folder / "memo"), []
def run(*words): return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
lock = open("/var/tmp/mxr-test-loop-devices", "w")
fcntl.flock(lock, fcntl.LOCK_EX)  # the second image must get the device of the first one
device = run("losetup", "-f")
for name in ("a", "b", "a"):
    lower = folder / "lower" if above else mount
    run("losetup", device, str(folder / f"{name}.image"))
    run("mount", "-t", kind, "-o", "rw" if kind == "ext4" else "ro", device, str(lower))
    if above:
        layers = f"lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work"
        run("mount", "-t", "overlay", "-o", layers, "overlay", str(mount))
    model = mount / "model.onnx"
    for _ in range(2):
        rows.append([name, FileStamp.of(model)[:5], model_identity(model, (), memo),
                     sha256_memoised(model, memo) == sha256_file(model)])
    run("umount", *map(str, [mount, lower] if above else [mount]))
    run("losetup", "-d", device)
print(json.dumps(rows))
"""


def squashfs(folder: Path, image: Path) -> None:
    tool = program("mksquashfs", "squashfs-tools", "liblzo2-2")
    make = [tool, folder, image, "-all-time", str(STAMP), "-quiet", "-all-root"]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL, env=environ(tool))


def erofs(folder: Path, image: Path) -> None:
    tool = program("mkfs.erofs", "erofs-utils")
    subprocess.run([tool, f"-T{STAMP}", "--all-root", image, folder], check=True, capture_output=True)


def ext4(folder: Path, image: Path) -> None:
    """An image that can be written; the kernel changes no stamp when it is mounted."""
    uuid, env = "11111111-1111-1111-1111-111111111111", {**os.environ, "E2FSPROGS_FAKE_TIME": str(STAMP)}
    make = ["mkfs.ext4", "-q", "-U", uuid, "-E", f"hash_seed={uuid},lazy_itable_init=0", "-d", folder, image, "4M"]
    subprocess.run(make, check=True, env=env)
    for field in ("mtime", "ctime"):
        for name, value in ((field, f"@{STAMP}"), (f"{field}_extra", "0")):
            subprocess.run(
                ["debugfs", "-w", "-R", f"sif /model.onnx {name} {value}", image], check=True, capture_output=True
            )


@pytest.fixture
def folder(on_disk: Path) -> Path:
    for each in ("a", "b", "mount", "lower", "upper", "work"):
        (on_disk / each).mkdir()
    return on_disk


@pytest.mark.parametrize(("make", "above"), [(squashfs, ""), (squashfs, "overlay"), (erofs, ""), (ext4, "")])
def test_images_with_equal_stamps_are_different_models(
    folder: Path, make: Callable[[Path, Path], None], above: str
) -> None:
    if make is ext4 and not (shutil.which("mkfs.ext4") and shutil.which("debugfs")):
        pytest.skip("needs e2fsprogs")
    expected = {}
    for name, content in (("a", b"A" * 5000), ("b", b"B" * 5000)):
        model = folder / name / "model.onnx"
        model.write_bytes(content)
        os.utime(model, (STAMP, STAMP))
        make(folder / name, folder / f"{name}.image")
        expected[name] = model_identity(model, ())
    rows = json.loads(in_own_namespace(SCRIPT, folder, make.__name__, above or "-").splitlines()[-1])
    assert len({tuple(stamp) for _, stamp, _, _ in rows}) == 1, "the images can be told apart: the test shows nothing"
    assert [(name, identity) for name, _, identity, _ in rows] == [(name, expected[name]) for name, *_ in rows]
    assert all(right for *_, right in rows)
    assert (folder / "memo").exists() is (make is ext4)
