"""Hosts whose clocks are an hour apart: nothing expires early, and nothing is served that should not be."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from end_to_end.stack import Host, Registry
from servers.clocks import wrong_by

from .conftest import REF, Worker

ON = ("embedded",)


def of_clients(registry: Registry) -> int:
    """How many requests for programs came. A download, which has its line when it ended, may be told later."""
    return sum(map(registry.requests, ("POST /v1/resolve", "POST /v1/candidates", "GET /v1/artifacts")))


@pytest.mark.parametrize("clock", ["+1h", "-1h"])
def test_a_program_is_compiled_and_cached_across_wrong_clocks(
    own_registry: Callable[..., Registry],
    host: Callable[..., Host],
    worker: Callable[..., Worker],
    convnet: Path,
    tmp_path: Path,
    clock: str,
) -> None:
    registry = own_registry(environ={**wrong_by(clock), "MXR_WORK_LEASE": "3"})
    one = worker("one", url=registry.url).ready()
    mxr = host("asker", registry.url)
    done = mxr("fetch", convnet, *REF, "--on-miss", "wait", "--json").json
    assert done["source"] == "compiled"
    assert one.log.read_text().count(": attempt ") == 1, "no lease ended early"
    # A token for ten minutes is valid for ten minutes, by whichever clock.
    made = registry.ask("POST", "/v1/tokens", {"name": "short", "scopes": ["fetch"], "expires": 600}).json()
    off = datetime.fromisoformat(made["token"]["created_at"].replace("Z", "+00:00")).timestamp() - time.time()
    assert abs(off) > 3000, "the registry's clock is wrong"
    short = host("short", registry.url)
    short.environ["MXR_TOKEN"] = made["secret"]
    assert short("fetch", convnet, *REF, "--json").json["source"] == "registry"
    # The cache goes by its own clock: it asks nobody for an hour, and confirms after a change of its clock.
    asked = of_clients(registry)
    assert mxr("fetch", convnet, *REF, "--json").json["source"] == "cache"
    assert of_clients(registry) == asked
    for own in ("+2h", "-2h"):
        asked = of_clients(registry)
        assert mxr("fetch", convnet, *REF, "--json", env=wrong_by(own)).json["source"] == "cache"
        assert of_clients(registry) > asked, own
    # Times are shown, whatever they are.
    for words in (("jobs",), ("workers",), ("ls",), ("history",), ("cache", "ls")):
        shown = mxr(*words)
        assert shown.out and "Traceback" not in shown.err
    assert json.loads(mxr("jobs", "--json").out)
    registry.fsck()
