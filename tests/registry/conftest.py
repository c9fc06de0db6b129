"""Fixtures of the registry's tests: `mxr-registry serve` as a process on either database, and copies of filled ones."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from harness.programs import run as run_program
from registry.registry_client import Parts, RegistryState, RegistryUnderTest, Start
from servers.postgresql import name_in
from servers.rows import ENGINES, Databases, Rows


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """What holds the rows. A module in which that makes no difference overrides this with one of them."""
    return str(request.param)


@pytest.fixture(scope="module")
def shared_databases(engine: str, request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Databases that live as long as the module."""
    found = Databases(engine, lambda: request.getfixturevalue("postgresql"))
    yield found
    found.drop()


@pytest.fixture
def databases(engine: str, request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Databases of one test."""
    found = Databases(engine, lambda: request.getfixturevalue("postgresql"))
    yield found
    found.drop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shared_databases: Databases) -> Iterator[RegistryUnderTest]:
    """The registry of a module."""
    data = tmp_path_factory.mktemp("registry") / "data"
    found = RegistryUnderTest(data, rows=shared_databases(data))
    yield found
    found.end()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stopped registry to be copied: its data directory and rows, and what the test that filled it has to know."""

    data: Path
    rows: Rows
    facts: Any

    def copy(self, data: Path, databases: Databases) -> RegistryState:
        """The same in another data directory, which must be new, and in a database of its own."""
        shutil.copytree(self.data, data)
        if self.rows.environ:
            name, server = f"t{secrets.token_hex(8)}", databases.server()
            server.execute(f"CREATE DATABASE {name} TEMPLATE {name_in(self.rows.url)}")
            url = server.url(name)
            databases.known[data] = replace(self.rows, url=url, environ=self.rows.environ | {"MXR_DATABASE_URL": url})
        else:
            databases.known[data] = Rows(f"sqlite:///{data / 'registry.db'}")
        return RegistryState(data, databases.known[data])


@pytest.fixture(scope="module")
def snapshot_of(
    tmp_path_factory: pytest.TempPathFactory, shared_databases: Databases
) -> Callable[[Callable[[RegistryUnderTest], Any]], Snapshot]:
    """Makes snapshots: `snapshot_of(fill)` starts a registry, lets `fill` publish to it, and stops it."""

    def make(fill: Callable[[RegistryUnderTest], Any]) -> Snapshot:
        data = tmp_path_factory.mktemp("snapshot") / "data"
        server = RegistryUnderTest(data, rows=shared_databases(data))
        try:
            facts = fill(server)
        finally:
            code = server.stop()
        assert code == 0
        return Snapshot(data, server.rows, facts)

    return make


@pytest.fixture
def start(tmp_path: Path, databases: Databases) -> Iterator[Start]:
    """Starts registries of a test's own, all of which end with it: on new data, on `data`, or on a copied snapshot."""
    running: list[RegistryUnderTest] = []

    def begin(
        *flags: str,
        data: Path | None = None,
        rows: Rows | None = None,
        snapshot: Snapshot | None = None,
        **options: Any,
    ) -> RegistryUnderTest:
        folder = data or tmp_path / "data"
        if snapshot is not None:
            snapshot.copy(folder, databases)
        running.append(RegistryUnderTest(folder, *flags, rows=rows or databases(folder), **options))
        return running[-1]

    yield begin
    for each in running:
        each.end()


@pytest.fixture
def fsck(databases: Databases) -> Any:
    """Runs `mxr-registry fsck --json`: its exit number and document."""

    def run(data: Path, *flags: str, environ: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        found = os.environ | (environ or databases(data).environ)
        done = run_program(["mxr-registry", "fsck", "--json", "--data", str(data), *flags], env=found)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def parts() -> Parts:
    """The example files, and the keys that they go with."""
    return Parts()
