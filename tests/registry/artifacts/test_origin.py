"""Origin, choice and the rule `serve` over HTTP: what a publisher can claim, and what it never gets by that."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from harness.programs import run as run_program
from registry.registry_client import REF, Parts, RegistryUnderTest, Start, gpu_capabilities, gpu_key, on_sqlite, ref_key

EXPLICIT = {"sramecc": "+", "xnack": "-"}
FORGED = {"origin": "built", "created_by": "root", "job": "ab" * 16, "worker": "trusted", "compile_seconds": 1e6}


def namespace(server: RegistryUnderTest, *words: str, expect: int = 0) -> Any:
    """The document of `mxr-registry namespace`, run beside the registry."""
    words = ("mxr-registry", "namespace", *words, "--data", str(server.data), "--json")
    done = run_program([*words], env=os.environ | server.rows.environ)
    assert done.returncode == expect, done
    return json.loads(done.stdout)


@pytest.fixture
def registry(server: RegistryUnderTest) -> Any:
    """The registry of the module, empty and with its default rule, which is `any` on loopback."""
    server.clear()
    server.rows.execute("DELETE FROM namespaces")
    return server


def resolved(registry: Any, key: dict[str, Any], **constraints: Any) -> str:
    """The id of the artifact that a request gets."""
    return str(registry.ok("POST", "/v1/resolve", {"key": key, "constraints": constraints})["artifact"]["id"])


def built(registry: Any, key: dict[str, Any], data: bytes, capabilities: Any = None, **more: Any) -> Any:
    """The artifact that a worker makes for a request that no artifact answers."""
    worker = registry.register_worker("one", capabilities)
    job = registry.submit(key)
    assert job["id"] and job["state"] == "queued", job
    lease = registry.claim(worker)
    assert registry.finish(lease, data=data, **more)["state"] == "done"
    return registry.ok("GET", f"/v1/artifacts/{registry.job(job['id'])['artifact']}")


def test_what_a_publisher_says_of_itself_is_provenance_and_nothing_else(registry: Any, parts: Parts) -> None:
    key = parts.gpu_key()
    body = {"key": key, "manifest": registry.manifest(parts.gfx908), "provenance": FORGED}
    for name in ("origin", "created_by", "job", "worker", "sources", "promoted_at", "serve"):
        assert registry.error("POST", "/v1/artifacts", {**body, name: "built"})["code"] == "usage"
    claims = EXPLICIT | {"num_cu": 120, "rocm_patch": "7.2.1", "tuning": "exhaustive"}
    said = registry.ok("POST", "/v1/artifacts", {**body, "attributes": claims})
    assert (said["origin"], said["created_by"], said["job"], said["worker"]) == ("pushed", "tests", None, None)
    assert said["provenance"] == FORGED
    sources = said["sources"]
    assert {sources[name] for name in ("num_cu", "rocm_patch", "tuning", "model", "rocm")} == {"publisher"}
    assert {sources[name] for name in ("arch", "sramecc", "xnack", "inputs", "migraphx")} == {"reader"}
    # What others derive from provenance rests on what workers said.
    registry.register_worker("one", gpu_capabilities())
    estimate = registry.ok(
        "POST", "/v1/survey", {"requests": [{"key": {**key, "fast_math": False}, "constraints": {}}]}
    )
    assert estimate["standings"][0]["estimate"] is None


def test_a_publisher_cannot_hide_the_libraries_that_a_program_calls(registry: Any, parts: Parts) -> None:
    """They tie the program to its ROCm patch, which the rules of matching rely on."""
    miopen = parts.same_key[2]
    status, said = registry.publish(miopen, gpu_key(parts.model, "gfx90a"), attributes=EXPLICIT | {"libraries": []})
    assert (status, said["attributes"]["libraries"], said["sources"]["libraries"]) == (201, ["miopen"], "reader")


def test_the_same_bytes_with_other_facts(registry: Any, parts: Parts) -> None:
    key, facts = parts.gpu_key(), EXPLICIT | {"num_cu": 120}
    _, first = registry.publish(parts.gfx908, key, attributes=facts)
    path = f"/v1/artifacts/{first['id']}"
    assert registry.publish(parts.gfx908, key, attributes=facts, provenance={"file": "b"}) == (200, first)
    other = EXPLICIT | {"num_cu": 104}
    status, said = registry.publish(parts.gfx908, key, attributes=other)
    assert (status, said["code"]) == (409, "conflict") and said["context"]["amendable"] is True
    assert said["context"]["differences"] == [{"field": "num_cu", "asked": 104, "found": 120}]
    assert registry.ok("GET", path) == first
    # An amendment replaces the facts, and ends the promotion of those before it.
    registry.ok("POST", f"{path}/promote")
    status, said = registry.publish(parts.gfx908, key, attributes=other, provenance={"run": 2}, intent={"amend": True})
    assert (status, said["id"], said["attributes"]["num_cu"], said["provenance"]) == (200, first["id"], 104, {"run": 2})
    assert said["promoted_at"] is None and said["changed_at"] >= said["published_at"]
    # Only by who published it.
    registry.rows.execute("UPDATE artifacts SET created_by = 'somebody'")
    for changed in (facts, other):
        status, problem = registry.publish(parts.gfx908, key, attributes=changed, intent={"amend": True})
        assert (status, problem["code"]) == (403, "not_allowed")
    assert registry.ok("GET", path) == said | {"created_by": "somebody"}


def test_a_finish_over_pushed_bytes_replaces_origin_and_facts(registry: Any) -> None:
    key = ref_key(registry.register_model())
    forged = {"tuning": "exhaustive", "build": "evil"}
    _, pushed = registry.publish(REF, key, attributes=forged, provenance=FORGED, cut=4000)
    namespace(registry, "set", "default", "--serve", "built")
    assert registry.ok("GET", f"/v1/artifacts/{pushed['id']}")["serve"] == "built"
    done = built(registry, key, REF)
    assert done["id"] == pushed["id"]
    assert (done["origin"], done["worker"], done["created_by"]) == ("built", "one", "tests")
    assert registry.job(done["job"])["artifact"] == done["id"]
    # The manifest is the worker's, too: a publisher can cut a file into any number of blobs.
    assert [len(each["manifest"]["files"][0]["blobs"]) for each in (pushed, done)] == [-(-len(REF) // 4000), 1]
    assert registry.get(f"/v1/artifacts/{done['id']}/files/model.mxr").data == REF
    assert (done["attributes"]["tuning"], done["attributes"]["build"]) == ("default", None)
    assert done["provenance"] == {"compile_seconds": 12.5}
    assert done["sources"]["tuning"] == "worker" and done["sources"]["inputs"] == "reader"
    assert resolved(registry, key) == done["id"]
    # No push changes it again.
    for amend in (False, True):
        status, said = registry.publish(REF, key, attributes={"build": "evil"}, intent={"amend": amend})
        assert (status, said["code"]) == (409, "conflict") and "worker one" in said["detail"]
    assert registry.publish(REF, key, attributes=done["attributes"])[0] == 200
    assert registry.ok("GET", f"/v1/artifacts/{done['id']}") == done


def test_a_worker_brings_back_what_was_removed(registry: Any) -> None:
    """It compiled the same bytes again, because somebody asked for it."""
    key = ref_key(registry.register_model())
    first = built(registry, key, REF)
    registry.ok("DELETE", f"/v1/artifacts/{first['id']}?force=yes")
    again = built(registry, key, REF)
    assert (again["id"], again["restored_by"]) == (first["id"], "one")
    assert registry.publish(REF, key, attributes=again["attributes"])[0] == 200


def test_bytes_of_another_model_are_refused(registry: Any, parts: Parts) -> None:
    """The weights are in a program: what one model was compiled to is no program of another one."""
    key, other = parts.gpu_key(), parts.gpu_key() | {"model": "sha256:" + "9" * 64}
    _, first = registry.publish(parts.gfx908, key, attributes=EXPLICIT)
    for batch in (other, other | {"fast_math": False}):
        status, said = registry.publish(parts.gfx908, batch, attributes=EXPLICIT, intent={})
        assert (status, said["code"], said["context"]["id"]) == (409, "conflict", first["id"])
        assert said["context"]["differences"] == [
            {"field": "model", "asked": other["model"], "found": parts.gpu_key()["model"]}
        ]
    assert "intent.also_for" in said["hint"]
    # The same model with other facts is no second model.
    assert registry.publish(parts.gfx908, key | {"fast_math": False}, attributes=EXPLICIT, intent={})[0] == 201
    status, second = registry.publish(parts.gfx908, other, attributes=EXPLICIT, intent={"also_for": True})
    assert status == 201
    # Each is known now, and can be pushed again.
    for mine in (key, other):
        assert registry.publish(parts.gfx908, mine, attributes=EXPLICIT, intent={})[0] == 200
    registry.ok("DELETE", f"/v1/artifacts/{first['id']}?force=yes")
    registry.ok("DELETE", f"/v1/artifacts/{second['id']}?force=yes")


def test_what_a_namespace_serves(registry: Any) -> None:
    key = ref_key(registry.register_model())
    _, pushed = registry.publish(REF, key)
    path, asked = f"/v1/artifacts/{pushed['id']}", {"key": key, "constraints": {}}
    assert pushed["serve"] == "any" and resolved(registry, key) == pushed["id"]
    assert registry.submit(key)["artifact"] == pushed["id"]
    registry.ok("PUT", "/v1/locks/before", {"artifacts": [pushed["id"]]})

    namespace(registry, "set", "default", "--serve", "built")
    error = registry.error("POST", "/v1/resolve", asked)
    assert error["code"] == "no_such_artifact"
    assert "is pushed and not promoted" in error["detail"] and "only artifacts that a worker built" in error["detail"]
    rule = {"rule": "built", "namespace": "default", "excluded": [pushed["id"]]}
    assert "POST /v1/artifacts/{id}/promote" in error["hint"] and "POST /v1/jobs" in error["hint"]
    assert "mxr-registry namespace set default --serve any" in error["hint"]
    assert error["context"]["serve"] == rule
    unserved = [{"field": "origin", "asked": "built or promoted", "found": "pushed"}]
    assert registry.ok("GET", "/v1/misses")["items"][0]["nearest"] == [{"id": pushed["id"], "differences": unserved}]
    # It answers no ask. By its id it is served, and a lock that had it keeps it; no lock takes it anew.
    assert registry.ok("POST", "/v1/survey", {"requests": [asked]})["standings"][0]["artifact"] is None
    assert registry.submit(key)["state"] == "queued"
    assert registry.ok("GET", path)["serve"] == "built"
    assert registry.get(f"{path}/files/model.mxr").data == REF
    registry.ok("PUT", "/v1/locks/before", {"artifacts": [pushed["id"]]})
    refused = registry.error("PUT", "/v1/locks/fresh", {"artifacts": [pushed["id"]]})
    assert refused["code"] == "not_allowed" and refused["context"] == {"serve": rule}
    assert [each["name"] for each in registry.ok("GET", "/v1/locks")["items"]] == ["before"]

    registry.ok("POST", f"{path}/promote")
    assert resolved(registry, key) == pushed["id"]
    registry.ok("PUT", "/v1/locks/fresh", {"artifacts": [pushed["id"]]})


def test_a_namespace_that_serves_promoted_artifacts_only(registry: Any) -> None:
    key = ref_key(registry.register_model())
    namespace(registry, "set", "default", "--serve", "promoted")
    done = built(registry, key, REF)
    error = registry.error("POST", "/v1/resolve", {"key": key, "constraints": {}})
    assert "is built and not promoted" in error["detail"] and "--on-miss" not in error["hint"]
    # What a worker built is not built again for the lack of a promotion.
    assert registry.submit(key)["artifact"] == done["id"]
    registry.ok("POST", f"/v1/artifacts/{done['id']}/promote")
    assert resolved(registry, key) == done["id"]


def test_a_push_neither_outranks_nor_stops_what_was_built(registry: Any, parts: Parts) -> None:
    key, (minus, other) = parts.gpu_key("gfx90a"), parts.same_key[:2]
    _, early = registry.publish(other, key, attributes=EXPLICIT | {"num_cu": 104, "rocm_patch": "7.2.1"})
    _, done = registry.publish(minus, key, attributes=EXPLICIT)
    registry.rows.execute(f"UPDATE artifacts SET origin = 'built' WHERE id = '{done['id']}'")
    exactly = {**EXPLICIT, "num_cu": 104, "rocm_patch": "7.2.1"}
    assert resolved(registry, key, **exactly) == done["id"] != early["id"]
    # A push for the other setting of xnack makes no request ambiguous that something built answers.
    plus = {"sramecc": "+", "xnack": "+"}
    assert registry.publish(parts.gfx90a_plus, key, attributes=plus)[0] == 201
    assert resolved(registry, key) == done["id"]


@on_sqlite
def test_the_commands_for_namespaces(registry: Any) -> None:
    defaults = dict.fromkeys(("rocm", "migraphx", "consumer", "batch", "allow"))
    auto = {"namespaces": [{"name": "default", "serve": "auto", "defaults": defaults}]}
    promoted = {"name": "default", "serve": "promoted", "defaults": defaults}
    assert namespace(registry, "ls") == auto
    assert namespace(registry, "set", "default", "--serve", "promoted") == promoted
    assert namespace(registry, "ls") == {"namespaces": [promoted]}
    assert namespace(registry, "set", "team/a", "--serve", "any", expect=3)["error"]["code"] == "not_found"
    namespace(registry, "set", "default", "--serve", "auto")
    assert namespace(registry, "ls") == auto


@on_sqlite
@pytest.mark.parametrize(
    ("flags", "serve"),
    [
        (("--host", "127.0.0.1"), "any"),
        (("--host", "localhost"), "any"),
        (("--trusted-proxies", "127.0.0.1"), "built"),
        (("--host", "0.0.0.0"), "built"),
    ],
    ids=repr,
)
def test_only_a_registry_that_nobody_else_reaches_serves_everything(
    start: Start, parts: Parts, flags: tuple[str, ...], serve: str
) -> None:
    registry = start(*flags)
    _, said = registry.publish(parts.gfx908, parts.gpu_key(), attributes=EXPLICIT)
    assert said["serve"] == serve
    status, _ = registry.call("POST", "/v1/resolve", {"key": parts.gpu_key(), "constraints": {}})
    assert status == (200 if serve == "any" else 404)
