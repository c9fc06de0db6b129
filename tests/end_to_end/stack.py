"""The programs as processes: one registry with all that stands behind it, and hosts that run `mxr`.

`Registry` and `Stack` are the only places that know what a registry keeps its data in: tests ask them to damage, to
check, to die.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import urllib3
from harness import tokens
from harness.programs import BIN, Program, command
from harness.programs import run as run_program
from harness.registry import PROBLEM, USUAL, RegistryProcess
from servers.rows import Databases
from servers.swift import Bucket, S3Server

__all__ = ["BIN"]
PATIENCE = 300.0
"""Seconds that a process may take on a busy machine."""


@dataclass(frozen=True, slots=True)
class Done:
    """A process that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output; fails where there is anything else."""
        assert self.out.endswith("\n"), self
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error document."""
        found = self.json["error"]
        assert set(found) - {"request_id"} == PROBLEM, found
        assert found["detail"] and "\n" not in self.err.strip().splitlines()[0]
        return found


def clean_environ(home: Path) -> dict[str, str]:
    """An environment in which nothing of the person who runs the tests shows."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MXR_", "MIGRAPHX_", "XDG_", "HIP_", "ROCR_", "HSA_", "COV_"))
    }
    return kept | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "xdg-cache"),
        "XDG_CONFIG_HOME": str(home / "xdg-config"),
        "XDG_DATA_HOME": str(home / "xdg-data"),
        # Most registries that are away here stay away.
        "MXR_RETRY": "1.5",
    }


def real_environ() -> dict[str, str]:
    """The variables by which a worker finds the real migraphx that the tests were given; without one, a skip."""
    python = os.environ.get("MXR_TEST_MIGRAPHX_PYTHON")
    if not python:
        pytest.skip("MXR_TEST_MIGRAPHX_PYTHON names no interpreter with a real migraphx (PYTHONPATH its folder)")
    path = os.environ.get("MXR_TEST_MIGRAPHX_PATH") or os.environ.get("PYTHONPATH", "")
    return {
        "MXR_WORKER_PYTHON": python,
        "PYTHONPATH": path,
        "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
    }


def eventually(look: Callable[[], Any], seconds: float = 200.0) -> Any:
    """What `look` gives once it is true; fails when that does not come."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return found


def _meant(words: tuple[object, ...]) -> tuple[str, ...]:
    """What a push needs besides: the models of the tests differ in a text only, and have one program."""
    return ("--also-for",) if words[:1] == ("push",) else ()


class Host:
    """A machine that has `mxr`: a home and a cache of its own."""

    def __init__(self, home: Path, url: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.cache = home / "cache"
        self.url = url
        self.environ = clean_environ(home) | {"MXR_CACHE_DIR": str(self.cache), "MXR_REGISTRY": url}
        self.environ |= tokens.variable(url)

    def __call__(
        self,
        *words: object,
        expect: int = 0,
        env: Mapping[str, str] | None = None,
        through: tuple[str, ...] = (),
        stdin: str | None = None,
        cwd: Path | None = None,
        also_for: bool = True,
    ) -> Done:
        """Runs `mxr` to its end, by way of the command `through` if any; fails unless it exits with `expect`."""
        done = run_program(
            command("mxr", *words, *(_meant(words) if also_for else ()), through=through),
            env=self.environ | dict(env or {}),
            cwd=cwd or self.home,
            input=stdin,
            timeout=PATIENCE,
        )
        found = Done(done.returncode, done.stdout, done.stderr)
        assert found.code == expect, f"expected exit {expect}: mxr {' '.join(map(str, words))}\n{found}"
        assert "Traceback" not in found.err, found
        return found

    def start(
        self, *words: object, env: Mapping[str, str] | None = None, through: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        """Starts `mxr` and goes on."""
        return Program(
            command("mxr", *words, *_meant(words), through=through),
            env=self.environ | dict(env or {}),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def get(self, path: str) -> Any:
        """The JSON that the registry answers: for what is asked again and again until it changes.

        A program for each question would keep a core busy that the programs under test need.
        """
        reply = urllib3.request("GET", self.url + path, headers=tokens.authorization(self.url), timeout=PATIENCE)
        assert reply.status == 200, reply.data
        return reply.json()

    def python(self, code: str, *words: object, expect: int = 0) -> Done:
        """Runs a Python program on this host, with these arguments."""
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, words)],
            env=self.environ,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == expect, done
        return Done(done.returncode, done.stdout, done.stderr)

    def leftovers(self) -> list[Path]:
        """Files of this host that were begun and never became whole."""
        return [path for path in self.home.rglob("*") if ".mxr-partial-" in path.name]

    def held(self) -> list[Path]:
        """Programs in the cache, under their final names."""
        return [path for path in self.cache.glob("v2/files/*/*") if re.fullmatch("[0-9a-f]{64}", path.name)]


def finish(process: subprocess.Popen[str], timeout: float = PATIENCE) -> Done:
    """Waits for a process that was started."""
    out, err = process.communicate(timeout=timeout)
    return Done(process.returncode, out, err)


STACKS = ("embedded", "engines")
"""`embedded`: SQLite and files, nothing configured. `engines`: PostgreSQL and S3, as a fleet uses them."""


@dataclass(frozen=True, slots=True)
class Stack:
    """What stands behind the registries of some tests: a database and a bucket for each data directory.

    `signed`: clients get signed URLs; else all bytes go through the registry, and what a test put before it.
    """

    name: str
    databases: Databases
    swift: Callable[[], S3Server]
    signed: bool = True
    buckets: dict[Path, Bucket] = field(default_factory=dict)

    @property
    def embedded(self) -> bool:
        """Whether nothing is configured."""
        return self.name == "embedded"

    def behind(self, data: Path) -> dict[str, str]:
        """The environment of a registry with this data directory: what MXR_DATABASE_URL and MXR_STORE_URL name."""
        if self.embedded:
            self.databases(data)
            return {}
        if data not in self.buckets:
            self.buckets[data] = self.swift().bucket()
        signed = {} if self.signed else {"MXR_S3_SIGNED": "off"}
        return self.databases(data).environ | self.buckets[data].environ | signed

    def spoil(self, data: Path, sha256: str) -> None:
        """Changes one byte of a stored blob behind the registry's back, as a bad disk would."""
        if data in self.buckets:
            self.buckets[data].spoil(sha256)
            return
        path = data / "store" / "blobs" / sha256[:2] / sha256[2:4] / sha256
        found = bytearray(path.read_bytes())
        found[len(found) // 2] ^= 1
        path.chmod(0o644)
        path.write_bytes(found)

    def drop(self) -> None:
        """Remove what the registries kept in servers."""
        self.databases.drop()


class Registry(RegistryProcess):
    """`mxr-registry serve` on its stack, on a port that it keeps when it is started again."""

    def __init__(
        self,
        home: Path,
        stack: Stack,
        *,
        through: tuple[str, ...] = (),
        like: Registry | None = None,
        environ: Mapping[str, str] | None = None,
        spoil: Callable[[str], None] | None = None,
        port: int = 0,
    ) -> None:
        """`through`: the command that runs it. `like`: the registry whose data it takes over.

        `environ`: variables that replace those of the stack. `spoil`: changes one byte of a blob there.
        """
        home.mkdir(parents=True, exist_ok=True)
        self.stack = stack
        data = like.data if like else home / "data"
        self._spoil = spoil or partial(stack.spoil, data)
        found = clean_environ(home) | USUAL | stack.behind(data) | dict(environ or {})
        super().__init__(data, found, "--verbose", port=port, through=through, log=home / "registry.log")

    def fsck(self, *flags: str, expect: int = 0) -> dict[str, Any]:
        """The document of `mxr-registry fsck --json`."""
        done = run_program(command("mxr-registry", "fsck", "--json", *flags, "--data", self.data), env=self.environ)
        assert done.returncode == expect, done
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["ok"] == (expect == 0)
        return found

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> urllib3.BaseHTTPResponse:
        """A request as any HTTP client sends it; a body that is not bytes is sent as JSON."""
        return self.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})

    def requests(self, begin: str) -> int:
        """The number of requests in its log that begin so, as in `GET /v1/blobs`."""
        return self.log.read_text().count(f"requests: {begin}")

    def spoil(self, sha256: str) -> None:
        """Change one byte of a stored blob, as a bad disk would."""
        self._spoil(sha256)
