"""Programs that a test runs as they are: those of the machine, or Debian's, unpacked into .venv/tools."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from paths import ROOT

TOOLS = ROOT / ".venv" / "tools"
IN_CI = os.environ.get("CI", "") not in ("", "0", "false")


def missing(reason: str) -> NoReturn:
    """Skip the test for want of a tool; where CI is set, fail."""
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


def program(name: str, package: str, *libraries: str) -> str:
    """The path of a program of the machine, or of this Debian package, which is not installed for it.

    Its libraries must be on the machine, or in the packages `libraries`: then run it with `environ`.
    """
    found = shutil.which(name) or shutil.which(f"/usr/sbin/{name}")
    return found or _unpacked(name, package, libraries)


def environ(tool: str) -> dict[str, str]:
    """The environment in which an unpacked program finds the libraries beside it."""
    folders = Path(tool).parents[2].glob("**/lib/*-linux-gnu")
    return (
        {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, folders))}
        if TOOLS in Path(tool).parents
        else {**os.environ}
    )


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One test process at a time: apt-get fails where another one holds its lists."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    with (TOOLS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpacked(name: str, package: str, libraries: tuple[str, ...]) -> str:
    folder = TOOLS / package
    with _alone():
        folder.mkdir(exist_ok=True)
        if not (found := _in(folder, name)):
            for each in (*libraries, package):
                _unpack(folder, each)
            found = _in(folder, name)
    if not found:
        missing(f"The Debian package {package} has no program {name}.")
    return found


def _in(folder: Path, name: str) -> str | None:
    return shutil.which(name, path=f"{folder}/usr/bin:{folder}/usr/sbin")


def _unpack(folder: Path, package: str) -> None:
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg")
    if apt is None or dpkg is None:
        missing(f"Install {package}: this machine has no apt-get to download it with.")
    error = ""
    for words in (("download", package), ("update", "-qq"), ("download", package)):
        done = subprocess.run([apt, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        error = done.stderr
        if packages := list(folder.glob(f"{package}_*.deb")):
            subprocess.run([dpkg, "-x", str(packages[0]), str(folder)], check=True, timeout=60)
            return
    missing(f"{package} cannot be downloaded: {error[-300:]}")


def installed(*packages: str, **others: str) -> None:
    """Have the programs of these packages on the machine, each of which is called like its package.

    `others`: the packages of programs that have other names. Where CI is set and this is root, they are installed;
    elsewhere the test is skipped.
    """
    programs = {**dict.fromkeys(packages), **others}
    wanted = [package or name for name, package in programs.items() if shutil.which(name) is None]
    if not wanted:
        return
    apt = shutil.which("apt-get")
    if os.geteuid() != 0 or apt is None or not IN_CI:
        missing(f"Install {' and '.join(wanted)}, and run the tests as root.")
    with _alone():
        for words in (("update", "-qq"), ("install", "-y", "-qq", "--no-install-recommends", *wanted)):
            done = subprocess.run([apt, *words], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        missing(f"{' and '.join(wanted)} cannot be installed: {done.stderr[-300:]}")
