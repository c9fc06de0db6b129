"""Many processes of one host fetch the same program at once: one good file, downloaded once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.scale import crowd

from .large_program import MIB, write_program
from .stack import Host, Registry, finish

CROWD = crowd(200)


def test_many_fetch_at_once(
    registry: Registry, mxr: Host, host: Callable[..., Host], model: Path, tmp_path: Path
) -> None:
    program = write_program(tmp_path / "large.mxr", weights=2, size=4 * MIB, seed=7)
    published: dict[str, Any] = mxr("push", program, "--model", model, "--for", "python", "--json").json
    (file,) = registry.ask("GET", f"/v1/artifacts/{published['id']}").json()["manifest"]["files"]
    one = host("one")
    words = ("fetch", model, "--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--for", "python", "--json")
    before = registry.requests("GET /v1/blobs/")
    started = [one.start(*words) for _ in range(CROWD)]
    ended = [finish(process, 300) for process in started]
    assert [done for done in ended if done.code != 0] == []
    paths = {json.loads(done.out)["path"] for done in ended}
    assert paths == {str(path) for path in one.held()}
    assert Path(paths.pop()).read_bytes() == program.read_bytes()
    assert one.leftovers() == []
    sources = [json.loads(done.out)["source"] for done in ended]
    moved = registry.requests("GET /v1/blobs/") - before
    assert moved == len(file["blobs"]) * sources.count("registry")
    assert 1 <= sources.count("registry") <= 2
