"""Two registries sweep all the time, while hosts publish and fetch: nothing that a row points to is ever missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness.scale import SOAK

from .conftest import Programs
from .stack import PATIENCE, Host, Registry

ON = ("embedded", "engines") if SOAK else ("engines",)

SECONDS = 60 if SOAK else 3.5
"""How long they do."""

ENOUGH = 6
"""Commands that must succeed, however many are told to try again."""

RULES = """
[retention]
unused_days = 0.00001
grace_hours = 0.0004
every_hours = 0.0001
"""
"""Artifacts go after a second without a use, bytes a second and a half later; two sweeps begin every second."""


@pytest.mark.timeout(400)
def test_two_registries_sweep_while_hosts_publish_and_fetch(
    own_registry: Callable[..., Registry], tmp_path: Path, convnet: Path, programs: Programs
) -> None:
    rules = tmp_path / "registry.toml"
    rules.write_text(RULES)
    environ = {"MXR_REGISTRY_CONFIG": str(rules)}
    one = own_registry(environ=environ)
    two = own_registry(environ=environ, like=one)
    begun = time.monotonic()
    end, latest = begun + SECONDS, begun + PATIENCE
    codes: list[int] = []

    def work(number: int) -> None:
        """Publishes, and fetches with an empty cache what somebody published, swept or not by then."""
        registry = (one, two)[number % 2]
        turn = 0
        # On a busy machine, until something was published and fetched in spite of the sweeps.
        while time.monotonic() < end or (codes.count(0) < ENOUGH and time.monotonic() < latest):
            turn += 1
            asked = ("--env", f"MIGRAPHX_MLIR_TUNE_LIMIT={turn % 3}", "--for", "python")
            host = Host(tmp_path / f"host{number}-{turn}", registry.url)
            push = ("push", programs.ref, "--model", convnet, *asked, "--precision", "fp16")
            _run(host, codes, {0, 75}, *push)
            fetch = ("fetch", convnet, "--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--precision", "fp16")
            done = _run(host, codes, {0, 3, 75}, *fetch, *asked)
            if done:
                assert Path(done).read_bytes() == programs.ref.read_bytes()

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(work, number) for number in range(3)]:
            each.result()
    assert codes.count(0) >= ENOUGH
    assert "sweep finished" in one.log.read_text() and "sweep finished" in two.log.read_text()
    two.stop()
    found = one.fsck()
    assert [each for each in found["findings"] if each["damage"]] == []


def _run(host: Host, codes: list[int], expected: set[int], *words: object) -> str:
    """What `mxr` prints where it succeeds. Swept in between: not there (3), or to be tried again (75)."""
    process = host.start(*words)
    out, err = process.communicate(timeout=PATIENCE)
    codes.append(process.returncode)
    assert process.returncode in expected, err
    return out.strip() if process.returncode == 0 else ""
