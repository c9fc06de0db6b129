"""For all tests: real servers and a real ONNX Runtime, where one asks for them; programs hear Ctrl-C in any case."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from doubles.ort_migraphx import Judge, NoJudge, seat
from hypothesis import settings
from servers.postgresql import own_postgresql, postgresql
from servers.swift import Bucket, Swift, Unfit, start

__all__ = ["own_postgresql", "postgresql"]

# A shell that starts the tests in the background has them ignore SIGINT, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Property tests use the profile's number of examples. MXR_TEST_SOAK=1 selects many examples and full sizes.
settings.register_profile("default", max_examples=25, deadline=None)
settings.register_profile("soak", max_examples=500, deadline=None)
settings.load_profile("soak" if os.environ.get("MXR_TEST_SOAK") == "1" else "default")


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    """A real S3 server, one for each process of tests that needs it."""
    try:
        server = start(tmp_path_factory.mktemp("swift"))
    except Unfit as reason:
        if os.geteuid() == 0:
            raise
        pytest.skip(str(reason))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def judge(pytestconfig: pytest.Config) -> Judge:
    """ONNX Runtime's real provider; skips where it cannot be had."""
    cache = pytestconfig.cache
    assert cache is not None
    try:
        return seat(cache.mkdir("ort_migraphx"))
    except NoJudge as reason:
        pytest.skip(f"no judge of ONNX Runtime's names: {reason}")


@pytest.fixture
def bucket(swift: Swift, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket of this test's own, that this process may use as well."""
    found = swift.bucket()
    for name, value in found.environ.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    return found
