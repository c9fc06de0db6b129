"""Planning an upgrade: what is in use, what it costs to bring it back, and queueing it behind everybody else.

The registry has the programs of MIGraphX 2.15 that a worker with the double made, and a newer toolchain comes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from end_to_end.conftest import unique
from end_to_end.stack import Host, Registry

from .conftest import REF

ON = ("embedded",)

GFX908 = ("--arch", "gfx908:sramecc+:xnack-", "--migraphx", "2.15", "--batch", "4", "--for", "python")
UPGRADE = ("--from", "migraphx=2.15", "--to", "migraphx=2.16")


def uses(registry: Registry) -> dict[str, int]:
    found = json.loads(registry.ask("GET", "/v1/uses").data)["items"]
    return {each["artifact"]["id"]: each["count"] for each in found}


def test_what_is_in_use_is_planned_by_demand_and_queued(
    own_registry: Callable[..., Registry], worker: Callable[..., Any], tmp_path: Path, convnet: Path
) -> None:
    registry = own_registry()
    hosts = [Host(tmp_path / f"host{n}", registry.url) for n in range(3)]
    models = [unique(convnet, tmp_path / f"model{n}.onnx", f"{tmp_path}{n}") for n in range(3)]
    worker("old", url=registry.url).ready()
    for model in models:
        hosts[0]("fetch", model, *REF, "--on-miss", "wait")
    # Model 1 is fetched most, and much of that from caches; model 2 was never fetched again.
    for host in hosts[1:]:
        for _ in range(3):
            host("fetch", models[1], *REF)
        host("fetch", models[0], *REF)
    registry.restart()
    counts = uses(registry)
    ids = [hosts[0]("fetch", model, *REF, "--json").json["id"] for model in models]
    assert counts[ids[1]] > counts[ids[0]] > 0

    plan = hosts[0]("plan", *UPGRADE, "--json").json
    rows = {each["artifact"]: each for each in plan["programs"]}
    assert [each["artifact"] for each in plan["programs"]][:2] == [ids[1], ids[0]]
    assert all(each["state"] == "no worker" and each["took"] > 0 for each in plan["programs"])
    assert [each["model_name"] for each in plan["programs"]][:2] == ["model1.onnx", "model0.onnx"]
    assert "model1.onnx" in hosts[0]("plan", *UPGRADE).out
    assert plan["summary"]["seconds"] > 0 and plan["summary"]["unknown"] == 0
    assert rows[ids[1]]["estimate"] == rows[ids[1]]["took"]
    assert not json.loads(registry.ask("GET", "/v1/jobs?state=open").data)["items"]

    said = hosts[0]("plan", *UPGRADE, "--ask").out
    assert "MIGraphX 2.16" in said and f"Queued {len(rows)}" in said
    jobs = json.loads(registry.ask("GET", "/v1/jobs?state=open").data)["items"]
    assert [each["request"]["key"]["model"] for each in reversed(jobs)][:2] == [
        rows[ids[1]]["model"],
        rows[ids[0]]["model"],
    ]
    assert {each["priority"] for each in jobs} == {-50}
    # Again nothing new is queued, and the plan says what is on its way.
    assert hosts[0]("plan", *UPGRADE, "--ask", "--json").json["queued"] == {}
    assert {each["state"] for each in hosts[0]("plan", *UPGRADE, "--json").json["programs"]} == {"queued"}


def test_what_is_waited_for_or_fetched_by_a_lock_is_in_use(
    own_registry: Callable[..., Registry], worker: Callable[..., Any], tmp_path: Path, convnet: Path
) -> None:
    """Neither way resolves, and both are how a fleet gets its programs."""
    registry = own_registry()
    first, second = (Host(tmp_path / f"host{n}", registry.url) for n in range(2))
    worker("old", url=registry.url).ready()
    made = first("fetch", convnet, *REF, "--on-miss", "wait", "--json").json["id"]
    assert uses(registry) == {made: 1}

    lock = tmp_path / "mxr.lock"
    first("lock", convnet, *REF, "-o", lock)
    registry.restart()
    before = uses(registry)[made]
    second("fetch", "--locked", lock)
    assert uses(registry) == {made: before + 1}
    # From its own cache: told when this host next speaks to the registry.
    second("fetch", "--locked", lock)
    assert uses(registry) == {made: before + 1}
    second("fetch", convnet, *REF)
    registry.restart()
    assert uses(registry) == {made: before + 3}


def test_compiles_that_take_longer_are_pointed_out(mxr: Host, registry: Registry, model: Path, programs: Any) -> None:
    data = programs.gfx908.read_bytes()
    name = sha256(data).hexdigest()
    assert registry.ask("PUT", f"/v1/blobs/{name}", data).status < 300
    file = {"name": "m.mxr", "size": len(data), "sha256": name, "blobs": [{"sha256": name, "size": len(data)}]}

    def publish(rocm: str, seconds: float) -> str:
        """As a worker does, with what the compile took; nothing in the file tells the ROCm version."""
        key = mxr("key", model, *GFX908, "--rocm", rocm, "--json").json["key"]
        body = {"key": key, "manifest": {"v": 1, "files": [file]}, "provenance": {"compile_seconds": seconds}}
        body |= {"attributes": {"sramecc": "+", "xnack": "-"}}
        return str(json.loads(registry.ask("POST", "/v1/artifacts", body).data)["id"])

    old, new = publish("7.1", 10.0), publish("7.2", 31.0)
    # Only the times of workers count, and no worker here takes ten seconds.
    registry.stack.databases(registry.data).execute("UPDATE artifacts SET origin = 'built'")
    assert registry.ask("POST", "/v1/uses", {"uses": [{"id": old, "count": 4}]}).status == 200
    words = ("plan", "--from", "rocm=7.1,migraphx=2.15", "--to", "rocm=7.2,migraphx=2.15")
    found = mxr(*words, "--json").json
    assert [(row["artifact"], row["new"], row["took"], row["takes"]) for row in found["programs"]] == [
        (old, new, 10.0, 31.0)
    ]
    assert found["grown"] == [old] and found["summary"]["available"] == 1
    assert "3.1 times as long" in mxr(*words).err
    assert mxr(*words, "--grown", "4").err == ""
