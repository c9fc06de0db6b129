"""The database of two registries is restarted under load: clients come through, and nothing that was said is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from end_to_end.conftest import DATA, Programs, unique
from end_to_end.stack import Done, Host, Registry, Stack, finish
from servers.postgresql import PostgreSQL
from servers.rows import Databases
from servers.swift import Swift

from .conftest import REF, Worker, eventually, running, running_job

PUSHES = 4
PUBLISHERS = 3


@pytest.fixture(scope="module")
def stack(swift: Swift) -> Iterator[Stack]:
    """The engines, with a database server that nobody else uses."""
    server = PostgreSQL()
    yield Stack("engines", Databases("postgresql", lambda: server), lambda: swift)
    server.remove()


@pytest.fixture
def database(stack: Stack) -> PostgreSQL:
    """The server of the database."""
    return stack.databases.server()


LEASES = {"MXR_WORK_LEASE": "60"}
"""No lease runs out here, however busy the machine is and however long the database is away."""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[Registry]:
    found = Registry(tmp_path_factory.mktemp("registry"), stack, environ=LEASES)
    yield found
    found.kill9()


@pytest.fixture
def second(tmp_path: Path, registry: Registry) -> Iterator[Registry]:
    """Another registry on the same database and store."""
    found = Registry(tmp_path / "second", registry.stack, environ=LEASES, like=registry)
    yield found
    found.kill9()


def until_done(host: Host, *words: object) -> Done:
    """What a person or a script does: run it again while it says that this may pass."""
    for _ in range(20):
        process = host.start(*words)
        done = finish(process)
        if done.code not in (69, 75):
            break
    assert done.code == 0, done
    return done


def test_restarts_under_load(
    host: Callable[..., Host],
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    gate: Path,
    programs: Programs,
    registry: Registry,
    second: Registry,
    database: PostgreSQL,
    tmp_path: Path,
) -> None:
    """Publishers, resolvers, a compile that runs and one who waits for it, through two restarts and a crash."""
    worker("one").ready()
    model = marked(compile=f"wait:{gate}")
    patient = host("patient")
    waiting = patient.start("fetch", model, *REF, "--on-miss", "wait", "--json")
    job = running_job(patient)
    eventually(lambda: running(patient, job))
    urls = (registry.url, second.url)
    pushed: dict[str, Path] = {}
    begun = threading.Semaphore(0)

    def publish(number: int) -> None:
        one = host(f"publisher-{number}", urls[number % 2])
        for n in range(PUSHES):
            path = unique(
                DATA / "models" / "convrelu.onnx", tmp_path / f"{number}-{n}.onnx", f"{tmp_path} {number} {n}"
            )
            begun.release()
            words = ("push", programs.gfx908, "--model", path, "--rocm", "7.2", "--for", "python", "--json")
            pushed[until_done(one, *words).json["id"]] = path

    with ThreadPoolExecutor(PUBLISHERS) as pool:
        publishing = [pool.submit(publish, number) for number in range(PUBLISHERS)]
        for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGINT):
            for _ in range(PUBLISHERS):
                begun.acquire()
            database.restart(how)
        for each in publishing:
            each.result()
    gate.touch()
    done = finish(waiting)
    assert done.code == 0 and done.json["source"] == "compiled", done
    look = host("look", second.url)
    found: list[dict[str, Any]] = look("ls", "--json").json["artifacts"]
    assert {each["id"] for each in found} == set(pushed) | {done.json["id"]}
    assert len(pushed) == PUBLISHERS * PUSHES
    report = registry.fsck()
    assert (report["artifacts"], [each for each in report["findings"] if each["damage"]]) == (len(found), [])


def test_two_registries_stop_and_start_on_a_database_in_use(
    host: Callable[..., Host], registry: Registry, second: Registry, convnet: Path, worker: Callable[..., Worker]
) -> None:
    """What one was asked, the other answers, whichever of them was killed."""
    worker("one", url=second.url).ready()
    waiting = host("a").start("fetch", convnet, *REF, "--on-miss", "wait", "--json")
    done = finish(waiting)
    assert done.code == 0, done
    registry.kill9()
    assert host("b", second.url)("fetch", convnet, *REF, "--json").json["source"] == "registry"
    registry.start()
    assert host("c")("fetch", convnet, *REF, "--json").json["sha256"] == done.json["sha256"]
