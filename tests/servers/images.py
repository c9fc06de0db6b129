"""Images built without a container daemon, and run in their own file system: buildah with chroot, and unshare.

Source: the manual pages buildah-build(1), mmdebstrap(1), unshare(1).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import debian

CA_FILE = Path("/etc/ssl/certs/ca-certificates.crt")
PACKAGES = "python3-venv,coreutils,dash,base-files"


@dataclass(frozen=True, slots=True)
class Image:
    """An image: `config` as docker shows it, and its files at `root`."""

    config: dict[str, Any]
    root: Path

    def argv(self, *words: str) -> list[str]:
        """Its entry point, with these words in place of the usual ones, if any."""
        return [*self.config["Entrypoint"], *(words or self.config["Cmd"])]

    def command(self, argv: Sequence[str], data: Path, environ: dict[str, str]) -> list[str]:
        """The command that runs this as the user of the image: with a read-only file system but for /data, which is
        the folder `data`.

        `environ`: in addition to that of the image.
        """
        found = dict(each.split("=", 1) for each in self.config["Env"]) | environ
        user = self.config["User"]
        script = f"""
            mount --bind {self.root} {self.root}
            mount -o remount,bind,ro {self.root}
            mount --bind {data} {self.root}/data
            mount --bind /dev {self.root}/dev
            mount -t proc proc {self.root}/proc
            exec chroot --userspec={user} --groups= {self.root} \
                /usr/bin/env -i -C {self.config["WorkingDir"]} {shlex.join(f"{k}={v}" for k, v in found.items())} \
                {shlex.join(argv)}
        """
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation=private", "sh", "-ec", script]


class Builder:
    """Builds images in a folder, which has all of its state."""

    def __init__(self, folder: Path) -> None:
        debian.installed("buildah", "mmdebstrap")
        if os.geteuid() != 0:
            debian.missing("Run the tests as root: an image is built with chroot.")
        self.folder = folder
        self._driver = "overlay"

    def run(self, *words: object, cwd: Path | None = None) -> str:
        """Run buildah; its output."""
        state = ("--root", self.folder / "root", "--runroot", self.folder / "run", "--storage-driver", self._driver)
        argv = ["buildah", *map(str, (*state, *words))]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=500, cwd=cwd, check=False)
        assert done.returncode == 0, f"{shlex.join(argv)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout.strip()

    def base(self) -> str:
        """An image of Debian 12 with Python and its module venv, and hardly more."""
        folder = self.folder / "base"
        words = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={PACKAGES}", "bookworm", str(folder)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done
        try:
            container = self.run("from", "scratch")
            self.run("add", "--quiet", container, folder, "/")
        except AssertionError:
            # Inside of a container, the kernel may not allow an overlay. vfs always works, and copies whole images.
            self._driver = "vfs"
            container = self.run("from", "scratch")
            self.run("add", "--quiet", container, folder, "/")
        self.run("commit", "--quiet", container, "localhost/base")
        return "localhost/base"

    def build(self, dockerfile: Path, context: Path, base: str) -> Image:
        """Build this Dockerfile. pip finds its packages as it does outside, of which the image shows nothing."""
        pip = self.folder / "pip.conf"
        pip.write_text(_pip_configuration())
        words = ["build", "--format", "docker", "--isolation", "chroot", "--network", "host", "--tag", "tested"]
        words += ["--build-arg", f"BASE={base}", "--volume", f"{pip}:/etc/pip.conf:ro"]
        if CA_FILE.exists():
            words += ["--volume", f"{CA_FILE}:/run/ca.pem:ro"]
        self.run(*words, "--file", dockerfile, context)
        container = self.run("from", "tested")
        docker = json.loads(self.run("inspect", container))["Docker"]
        return Image(docker["config"], Path(self.run("mount", container)))


def _pip_configuration() -> str:
    """The indexes of packages that this pip uses, and its authorities."""
    words = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    found = dict(re.findall(r"^\S+?\.((?:extra-)?index-url|trusted-host|proxy)='(.*)'$", done.stdout, re.MULTILINE))
    lines = [f"{name} = {value}" for name, value in found.items() if "file://" not in value]
    authorities = ["cert = /run/ca.pem"] if CA_FILE.exists() else []
    return "\n".join(["[global]", *lines, *authorities, ""])
