"""Whoever dies in the middle, on either side: no half file under a final name, no row without bytes, and it goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from .large_program import MIB, write_program
from .relay import Relay
from .stack import PATIENCE, Host, Registry, finish

Hosts = Callable[..., Host]
SIGNED = False
ASKED = ("--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--for", "python")
HALF = 24 * MIB
FIRST_IS_WHOLE = 34 * MIB
"""Beyond what four blobs at once make together: a fifth is on its way, so one is there."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of 48 MiB in blobs of 8 MiB and less."""
    return write_program(tmp_path_factory.mktemp("large") / "large.mxr", weights=6, size=8 * MIB, seed=3)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of 48 MiB, nearly all of it one blob."""
    return write_program(tmp_path_factory.mktemp("single") / "single.mxr", weights=1, size=48 * MIB, seed=4)


@pytest.mark.on("embedded", "engines")
def test_the_registry_dies_in_the_middle_of_an_upload(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, large: Path
) -> None:
    registry = own_registry()
    with Relay(registry.url, up=True, after=FIRST_IS_WHOLE, then=registry.kill9) as relay:
        cut = host("publisher", relay.url)("push", large, "--model", model, "--for", "python", expect=69)
        assert "does not answer" in cut.err
        assert relay.reached.is_set()
    registry.start()
    found = registry.fsck()
    assert found["artifacts"] == 0
    assert not [each for each in found["findings"] if each["damage"]]
    mxr = host("publisher", registry.url)
    with Relay(registry.url) as counting:
        mxr("push", large, "--model", model, "--for", "python", env={"MXR_REGISTRY": counting.url})
        assert counting.bytes[True] < large.stat().st_size - 7 * MIB, "what had arrived whole is not sent again"
    assert registry.fsck()["artifacts"] == 1
    fetched = host("other", registry.url)("fetch", model, *ASKED).out.strip()
    assert Path(fetched).read_bytes() == large.read_bytes()


def test_the_registry_dies_in_the_middle_of_a_download(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, large: Path
) -> None:
    registry = own_registry()
    host("publisher", registry.url)("push", large, "--model", model, "--for", "python")
    with Relay(registry.url, after=HALF, then=registry.kill9) as relay:
        other = host("other", relay.url)
        error = other("fetch", model, *ASKED, "-o", other.home / "model.mxr", "--json", expect=69).error
        assert error["retry"] is True
        assert relay.reached.is_set()
        assert (other.held(), len(other.leftovers())) == ([], 1)
        assert not (other.home / "model.mxr").exists()
    registry.start()
    registry.fsck()
    fetched = other("fetch", model, *ASKED, env={"MXR_REGISTRY": registry.url}).out.strip()
    assert Path(fetched).read_bytes() == large.read_bytes()


def test_a_connection_that_breaks_once_is_not_even_noticed(
    registry: Registry, mxr: Host, host: Hosts, model: Path, large: Path
) -> None:
    mxr("push", large, "--model", model, "--for", "python")
    with Relay(registry.url, after=HALF, then=lambda: relay.drop()) as relay:
        fetched = host("other", relay.url)("fetch", model, *ASKED).out.strip()
        assert relay.reached.is_set()
    assert Path(fetched).read_bytes() == large.read_bytes()


@pytest.mark.on("embedded", "engines")
def test_the_client_dies_in_the_middle_of_an_upload(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, large: Path
) -> None:
    registry = own_registry()
    with Relay(registry.url, up=True, after=HALF, hold=True) as relay:
        running = host("publisher", relay.url).start("push", large, "--model", model, "--for", "python")
        assert relay.reached.wait(PATIENCE)
        running.kill()
        finish(running)
    found = registry.fsck()
    assert found["artifacts"] == 0
    host("publisher", registry.url)("push", large, "--model", model, "--for", "python")
    assert registry.fsck()["artifacts"] == 1


@pytest.mark.parametrize("kind", ["large", "single"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_download_that_was_stopped_goes_on(
    registry: Registry,
    mxr: Host,
    host: Hosts,
    model: Path,
    how: signal.Signals,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    """By Ctrl-C, which ends it at once, or by kill -9; another process moves only what is missing."""
    program: Path = request.getfixturevalue(kind)
    mxr("push", program, "--model", model, "--for", "python")
    with Relay(registry.url, after=HALF, hold=True) as relay:
        other = host("other", relay.url)
        running = other.start("fetch", model, *ASKED, "--json")
        assert relay.reached.wait(PATIENCE)
        running.send_signal(how)
        done = finish(running, 60)
    if how == signal.SIGINT:
        assert (done.code, done.error["code"]) == (130, "interrupted")
        assert "Traceback" not in done.err and "go on where they stopped" in done.err
    assert (other.held(), len(other.leftovers())) == ([], 1)
    with Relay(registry.url) as counting:
        fetched = other("fetch", model, *ASKED, env={"MXR_REGISTRY": counting.url}).out.strip()
        # What was on its way in buffers of the kernel is lost.
        assert counting.bytes[False] < program.stat().st_size - HALF + 16 * MIB
    assert Path(fetched).read_bytes() == program.read_bytes()
    assert other.leftovers() == []


def test_what_a_stopped_download_left_is_cleaned_up(
    registry: Registry, mxr: Host, host: Hosts, model: Path, large: Path
) -> None:
    mxr("push", large, "--model", model, "--for", "python")
    with Relay(registry.url, after=HALF, hold=True) as relay:
        other = host("other", relay.url)
        running = other.start("fetch", model, *ASKED)
        assert relay.reached.wait(PATIENCE)
        running.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGINT)
        assert finish(running, 60).code in (130, -signal.SIGINT)
    assert len(other.leftovers()) == 1
    other("cache", "prune", "--older-than", "0")
    assert other.leftovers() == []


def test_ctrl_c_in_the_middle_of_an_upload_ends_at_once_with_130(
    registry: Registry, host: Hosts, model: Path, tmp_path: Path
) -> None:
    program = write_program(tmp_path / "new.mxr", weights=6, size=8 * MIB, seed=5)
    with Relay(registry.url, up=True, after=HALF, hold=True) as relay:
        running = host("publisher", relay.url).start("push", program, "--model", model, "--for", "python")
        assert relay.reached.wait(PATIENCE)
        running.send_signal(signal.SIGINT)
        done = finish(running, 60)
    assert done.code == 130
    assert "mxr: Interrupted." in done.err
    assert "Traceback" not in done.err
