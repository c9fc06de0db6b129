"""The programs, installed from their wheel, work on the oldest and the newest supported Python here.

In a soak run, on each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness.scale import SOAK
from paths import ROOT

from .compiling.conftest import worker_environ
from .conftest import Programs
from .stack import Host, clean_environ, eventually

ON = ("embedded",)
MINORS = (10, 11, 12, 13) if SOAK else (10, 13)
FETCH = """
import sys, mxr
print(mxr.fetch(sys.argv[1], arch="gfx908:sramecc+:xnack-", rocm="7.2", migraphx="2.15", batch=4).path)
"""


def interpreter(minor: int) -> str | None:
    """The Python 3.`minor` of this machine that runs, and can make environments."""
    if sys.version_info[:2] == (3, minor):
        return sys.executable
    # pyenv's commands on PATH answer for the selected version only.
    own = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"))
    for found in filter(None, (shutil.which(f"python3.{minor}"), *own)):
        probe = [found, "-c", "import ensurepip, ssl, sqlite3, venv"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return str(found)
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `make dist` builds."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (found,) = folder.glob("*.whl")
    return found


def run(*words: str, environ: dict[str, str] | None = None) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(words, env=environ or os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("minor", [minor for minor in MINORS if interpreter(minor)])
def test_the_programs_work_from_their_wheel(
    mxr: Host,
    host: object,
    wheel: Path,
    model: Path,
    programs: Programs,
    gpu: tuple[str, ...],
    tmp_path: Path,
    minor: int,
) -> None:
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    python = interpreter(minor)
    assert python is not None
    environment = tmp_path / "environment"
    run(python, "-m", "venv", "--without-pip", str(environment))
    own = str(environment / "bin" / "python")
    install = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", own, "install")
    run(*install, "--no-compile", str(wheel))
    environ = {**mxr.environ, "MXR_CACHE_DIR": str(tmp_path / "cache")}
    command = str(environment / "bin" / "mxr")
    assert run(command, "--version", environ=environ) == "mxr 0.1.0\n"
    path = run(command, "fetch", str(model), *gpu, environ=environ).strip()
    assert Path(path).read_bytes() == programs.gfx908.read_bytes()
    assert Path(run(own, "-c", FETCH, str(model), environ=environ).strip()).read_bytes() == programs.gfx908.read_bytes()
    run(*install, "--no-compile", f"{wheel}[registry,workers]")
    assert json.loads(run(str(environment / "bin" / "mxr-worker"), "host", environ=worker_environ(tmp_path)))["slots"]
    log = tmp_path / "registry.log"
    words = [str(environment / "bin" / "mxr-registry"), "serve", "--port", "0", "--data", str(tmp_path / "data")]
    with log.open("w") as out:
        registry = subprocess.Popen(words, env=clean_environ(tmp_path), stdout=out, stderr=out)
    try:
        eventually(lambda: "listening on http" in log.read_text() or registry.poll() is not None)
        assert registry.poll() is None, log.read_text()
        served = clean_environ(tmp_path) | {"MXR_REGISTRY": log.read_text().split("listening on ")[1].split()[0]}
        assert run(command, "ls", environ=served).startswith("ID ")
    finally:
        registry.terminate()
        registry.wait(60)
