"""Makes the generated clients, once for all processes and runs that share a folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYTHON = (HERE / "python_client.py",)
TYPESCRIPT = tuple(HERE / "typescript" / name for name in ("client.ts", "package.json", "tsconfig.json"))
PACKAGES = tuple(HERE / "typescript" / name for name in ("package.json", "package-lock.json"))
GENERATOR = Path(sysconfig.get_path("scripts"), "openapi-python-client")


def run(*words: object, cwd: Path, token: str = "") -> str:
    """The output of a program that must succeed."""
    environ = {**os.environ, "TOKEN": token}
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env=environ, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python_client(root: Path, document: bytes) -> Callable[..., str]:
    """Runs python_client.py with the client that openapi-python-client makes of a document."""

    def generate(folder: Path) -> None:
        (folder / "openapi.json").write_bytes(document)
        run(GENERATOR, "generate", "--path", "openapi.json", "--meta", "none", "--output-path", "mxr_api", cwd=folder)

    folder = _once(root, "python", PYTHON, document, generate)
    return lambda token, *words: run(sys.executable, "python_client.py", *words, cwd=folder, token=token)


def typescript_client(root: Path, document: bytes) -> Callable[..., str]:
    """Runs client.ts with the types that openapi-typescript makes of a document; the compiler checks all types.

    Without node, or without the npm registry, the test is skipped; where CI is set, it fails.
    """
    packages = _once(root, "packages", PACKAGES, b"", _install)

    def generate(folder: Path) -> None:
        (folder / "openapi.json").write_bytes(document)
        (folder / "node_modules").symlink_to(packages / "node_modules")
        run("node_modules/.bin/openapi-typescript", "openapi.json", "-o", "api.d.ts", cwd=folder)
        run("node_modules/.bin/tsc", "--project", ".", cwd=folder)

    folder = _once(root, "typescript", TYPESCRIPT, document, generate)
    return lambda token, *words: run("node", "client.js", *words, cwd=folder, token=token)


def _install(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        _give_up("Install node and npm: the generated TypeScript client needs them.")
    install = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=150, check=False)
    if done.returncode:
        _give_up(f"npm cannot install the packages of the TypeScript client: {done.stderr[-500:]}")


def _give_up(reason: str) -> None:
    if os.environ.get("CI", "") not in ("", "0", "false"):
        pytest.fail(reason)
    pytest.skip(reason)


def _once(root: Path, name: str, files: tuple[Path, ...], more: bytes, make: Callable[[Path], None]) -> Path:
    """Return a folder with copies of these files in which `make` has run; another one for other files."""
    content = sha256(b"\0".join([sys.version.encode(), more, *(each.read_bytes() for each in files)])).hexdigest()
    folder = root / f"{name}-{content[:16]}"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for each in files:
                shutil.copy(each, folder)
            make(folder)
            (folder / "ready").touch()
    return folder
