"""Fixtures of all tests: the shared servers, a real ONNX Runtime provider, marks, and the number of examples."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles.ort_migraphx import Judge, NoJudge, seat
from harness.folders import MEMORY, in_memory
from harness.programs import ForkServer
from harness.scale import SOAK
from hypothesis import settings
from paths import TESTS
from servers.mounts import folder_on_disk
from servers.postgresql import PostgreSQLServer, own_postgresql
from servers.shared import SharedServers, shared_postgresql, shared_s3
from servers.swift import Bucket, S3Server

__all__ = ["own_postgresql"]

# A shell that starts the tests in the background has them ignore SIGINT, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# NumPy's threads wait busily for work, in each of the many programs that import it: half of what its import costs.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Collecting garbage as often as usual takes a third of the time of a process that has all tests in memory.
gc.set_threshold(50_000, 20, 20)

# The tests write some GB and call fsync often, which takes time on a disk.
if not SOAK and in_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Property tests use the profile's number of examples. MXR_TEST_SOAK=1 selects many examples and full sizes.
settings.register_profile("default", max_examples=25, deadline=None)
settings.register_profile("soak", max_examples=500, deadline=None)
settings.load_profile("soak" if SOAK else "default")


SERVERS = pytest.StashKey[SharedServers]()


def pytest_configure(config: pytest.Config) -> None:
    """The process that controls the run offers the shared servers; those of pytest-xdist use them."""
    if not hasattr(config, "workerinput"):
        config.stash[SERVERS] = SharedServers()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stops what this process started."""
    ForkServer.stop()
    if SERVERS in config.stash:
        config.stash[SERVERS].stop()


PROCESS_FOLDERS = ("bench", "compiler_workers", "end_to_end", "migrations", "registry")
PROCESS_FIXTURES = frozenset({"bucket", "judge", "own_postgresql", "postgresql", "swift"})


FIRST = frozenset(
    {
        "end_to_end/compiling/test_access_page.py",
        "end_to_end/compiling/test_compile_failures.py",
        "end_to_end/compiling/test_network_cuts.py",
        "registry/api_clients/test_generated_clients.py",
        "registry/test_schemathesis.py",
    }
)
"""Modules with tests of half a minute: at the end of a run, the other processes would have nothing left to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest tests first, and marks those that start processes; `make quick` leaves these out."""
    items.sort(key=lambda item: str(item.path.relative_to(TESTS)) not in FIRST)
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in PROCESS_FOLDERS or PROCESS_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="session")
def postgresql() -> PostgreSQLServer:
    """The PostgreSQL of this run; a test takes a database of its own with `migrated` or `empty`."""
    return shared_postgresql()


@pytest.fixture(scope="session")
def swift() -> S3Server:
    """The S3 server of this run; a test takes a bucket of its own."""
    return shared_s3()


@pytest.fixture(scope="session")
def judge(pytestconfig: pytest.Config) -> Judge:
    """ONNX Runtime's real provider."""
    cache = pytestconfig.cache
    assert cache is not None
    try:
        return seat(cache.mkdir("ort_migraphx"))
    except NoJudge as reason:
        pytest.fail(f"ONNX Runtime's provider cannot be installed: {reason}")


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder where digests of files are remembered."""
    with folder_on_disk() as folder:
        yield folder


@pytest.fixture
def bucket(swift: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket of this test's own, that this process may use as well."""
    found = swift.bucket()
    for name, value in found.environ.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    return found
