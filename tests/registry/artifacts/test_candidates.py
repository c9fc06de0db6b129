"""Partial requests over HTTP: no, one, several and too many candidates, and what is said where there is none."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from harness.programs import run as run_program
from registry.registry_client import (
    GFX908,
    REF,
    Parts,
    RegistryUnderTest,
    gpu_capabilities,
    gpu_key,
    on_sqlite,
    ref_key,
)
from sqlalchemy import text
from sqlalchemy.dialects import sqlite

from mxr.artifact.key import Key
from mxr.artifact.partial import PartialRequest
from mxr.util import codec
from mxr_registry.artifacts import candidates as stored_candidates
from mxr_registry.database import schema
from mxr_registry.database.session import Database

OPEN = {"kind": "gpu", "vendor": "amd", "arch": "gfx908", "inputs": {"x": [None, 3, 32, 32]}}
FEATURED = {"attributes": {"sramecc": "+", "xnack": "-"}}


@pytest.fixture
def model(server: RegistryUnderTest, request: pytest.FixtureRequest) -> str:
    """The identity of a model of this test."""
    server.rows.execute("DELETE FROM workers")
    return "sha256:" + sha256(request.node.name.encode()).hexdigest()


def published(server: RegistryUnderTest, key: dict[str, Any], **more: Any) -> str:
    status, said = server.publish(GFX908, key, **{**FEATURED, **more})
    assert status == 201, said
    return str(said["id"])


def candidates(server: RegistryUnderTest, model: str, **stated: Any) -> Any:
    return server.ok("POST", "/v1/candidates", {"model": model, **OPEN, **stated})


def miss(server: RegistryUnderTest, model: str, **stated: Any) -> Any:
    status, said = server.call("POST", "/v1/candidates", {"model": model, **OPEN, **stated})
    assert (status, said["code"]) == (404, "no_such_artifact")
    return said


def test_one_program_completes_the_request(server: RegistryUnderTest, model: str) -> None:
    id = published(server, gpu_key(model))
    for stated in (
        {},
        {"rocm": "7.2"},
        {"inputs": {"x": [4, 3, 32, 32]}},
        {"inputs": {"x": None}},
        {"fast_math": True},
    ):
        found = candidates(server, model, **stated)
        (only,) = found["candidates"]
        assert (only["id"], found["total"], found["varies"], found["more"]) == (id, 1, {}, False)
        assert codec.decode(Key, only["key"], "key") == codec.decode(Key, gpu_key(model), "key")
    assert only["num_cu"] is None, "one program needs no count to be chosen"
    removed = server.request("DELETE", f"/v1/artifacts/{id}")
    assert removed.status == 200
    assert "does not know this model" in miss(server, model)["detail"]


@on_sqlite
def test_the_newest_toolchain_is_the_first(server: RegistryUnderTest, model: str) -> None:
    """That a reply has 50 at most, and the number of all, is in end_to_end/test_partial_requests."""
    for minor in range(12):
        published(server, gpu_key(model, rocm=f"7.{minor}"))
    found = candidates(server, model)
    assert found["total"] == 12 and found["varies"] == {"rocm": 12}
    assert [each["key"]["rocm"] for each in found["candidates"]] == [f"7.{minor}" for minor in reversed(range(12))]
    published(server, gpu_key(model, rocm="7.3", fast_math=False))
    found = candidates(server, model)
    assert (found["total"], found["varies"]) == (13, {"rocm": 12, "fast_math": 2})
    assert candidates(server, model, rocm="7.3")["varies"] == {"fast_math": 2}


def test_programs_that_differ_only_in_their_cus(server: RegistryUnderTest, parts: Parts, model: str) -> None:
    key, ids = gpu_key(model, "gfx90a"), {}
    for data, count in zip(parts.same_key, (104, 110), strict=False):
        status, said = server.publish(data, key, attributes={"sramecc": "+", "xnack": "-", "num_cu": count})
        assert status == 201, said
        ids[count] = said["id"]
    found = candidates(server, model, arch="gfx90a")
    assert {each["num_cu"]: each["id"] for each in found["candidates"]} == ids
    assert found["varies"] == {"num_cu": 2}
    (only,) = candidates(server, model, arch="gfx90a", constraints={"num_cu": 110})["candidates"]
    assert (only["id"], only["num_cu"]) == (ids[110], None)
    nearest = miss(server, model, arch="gfx90a", constraints={"num_cu": 64})["context"]["nearest"]
    assert {each["differences"][0]["field"] for each in nearest} == {"num_cu"}


def test_what_is_never_open_is_compared(server: RegistryUnderTest, model: str) -> None:
    id = published(server, gpu_key(model, precision="int8"))
    error = miss(server, model)
    assert error["context"]["open"] == ["rocm", "migraphx", "offload_copy", "fast_math", "inputs.x"]
    differences = [{"field": "precision", "asked": "fp32", "found": "int8"}]
    assert error["context"]["nearest"] == [{"id": id, "differences": differences}]
    assert "has precision int8, but the request asks for fp32." in error["detail"]
    assert candidates(server, model, precision="int8")["total"] == 1
    for stated in ({"arch": "gfx90a"}, {"vendor": "hygon", "arch": "gfx908"}, {"options": {"split_sizes": "1"}}):
        assert miss(server, model, precision="int8", **stated)["context"]["nearest"][0]["id"] == id


def test_what_the_namespace_does_not_serve_is_said(server: RegistryUnderTest, model: str) -> None:
    def serve(rule: str) -> None:
        words = ("mxr-registry", "namespace", "set", "default", "--serve", rule, "--data", str(server.data))
        assert run_program([*words], env=os.environ | server.rows.environ).returncode == 0

    id = published(server, gpu_key(model))
    serve("built")
    try:
        error = miss(server, model)
        assert error["context"]["serve"] == {"rule": "built", "namespace": "default", "excluded": [id]}
        assert "/promote" in error["hint"] and "is pushed and not promoted" in error["detail"]
        server.ok("POST", f"/v1/artifacts/{id}/promote")
        assert candidates(server, model)["total"] == 1
    finally:
        serve("any")


def test_a_miss_names_the_toolchains_that_could_compile(server: RegistryUnderTest, model: str) -> None:
    assert miss(server, model)["context"]["toolchains"] == []
    for name, rocm in (("one", "7.2.1"), ("two", "7.10.0"), ("three", "7.2.1")):
        server.register_worker(name, gpu_capabilities(rocm=rocm))
    server.register_worker("other", gpu_capabilities("gfx90a", 104, rocm="7.9.0"))
    newest_first = [{"migraphx": "2.15", "rocm": "7.10"}, {"migraphx": "2.15", "rocm": "7.2"}]
    assert miss(server, model)["context"]["toolchains"] == newest_first
    assert miss(server, model, rocm="7.2")["context"]["toolchains"] == newest_first[1:]
    assert miss(server, model, constraints={"num_cu": 64})["context"]["toolchains"] == []


def test_the_ref_target(server: RegistryUnderTest, model: str) -> None:
    _, said = server.publish(REF, ref_key(model))
    asked = {"model": model, "kind": "ref", "inputs": {"x": None}, "precision": "fp16"}
    found = server.ok("POST", "/v1/candidates", asked)
    assert [each["id"] for each in found["candidates"]] == [said["id"]]
    assert "MIGraphX" not in server.error("POST", "/v1/candidates", asked | {"migraphx": "2.1"})["detail"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"arch": None}, "no arch"),
        ({"arch": "gfx90a:xnack+"}, "arch"),
        ({"kind": "cpu"}, "kind"),
        ({"vendor": "nvidia"}, "vendor"),
        ({"model": "sha256:00"}, "model"),
        ({"precision": "fp12"}, "precision"),
        ({"migraphx": "2"}, "migraphx"),
        ({"inputs": {"x": [0]}}, "inputs.x"),
        ({"inputs": {"x": "4"}}, "inputs.x"),
        ({"inputs": {"x": [None] * 65}}, "inputs.x"),
        ({"inputs": {f"i{n}": None for n in range(1001)}}, "inputs"),
        ({"env": {"LD_PRELOAD": "x"}}, "LD_PRELOAD"),
        ({"constraints": {"rocm_patch": "7.2.1"}}, "rocm_patch"),
        ({"constraints": {"exact": True, "allow": ["cu"]}}, "exact"),
        ({"surprise": 1}, "surprise"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_is_invalid_is_refused(server: RegistryUnderTest, model: str, change: dict[str, Any], field: str) -> None:
    error = server.error("POST", "/v1/candidates", {"model": model, **OPEN, **change})
    assert error["code"] == "usage" and field in error["detail"] + error["hint"], error


def test_what_one_request_reads_is_bounded(
    server: RegistryUnderTest, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minor in range(5):
        published(server, gpu_key(model, rocm=f"7.{minor}"))
    partial = codec.decode(PartialRequest, {"model": model, **OPEN})
    db = Database(server.rows.url, serve="any")
    try:
        for name, value in (("MAX_ROWS", 3), ("MAX_KEY_BYTES", 3 * 400)):
            with monkeypatch.context() as patched:
                patched.setattr(stored_candidates, name, value)
                found = stored_candidates.find_candidates(db, "default", partial)
            assert found is not None and (found["more"], found["total"] <= 3) == (True, True), name
        found = stored_candidates.find_candidates(db, "default", partial)
        assert found is not None and (found["more"], found["total"]) == (False, 5)
    finally:
        db.close()


@pytest.mark.parametrize("known", [{}, {"rocm": "7.2"}, {"rocm": "7.2", "migraphx": "2.15"}], ids=str)
def test_the_index_answers_and_no_scan(tmp_path: Path, model: str, known: dict[str, Any]) -> None:
    """One million artifacts made a partial request 650 times as slow as a resolve where the order chose the index."""
    partial = codec.decode(PartialRequest, {"model": model, **OPEN, **known})
    statement = stored_candidates.query_programs("default", partial.fixed_digests[0], partial)
    sql = str(statement.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
    db = Database(f"sqlite:///{tmp_path / 'registry.db'}")
    schema.upgrade(db)
    with db.reading() as session:
        plan = [row.detail for row in session.execute(text(f"EXPLAIN QUERY PLAN {sql}"))]
    db.close()
    assert any(
        "USING INDEX ix_artifacts_namespace_fixed_digest_seq (namespace=? AND fixed_digest=?)" in row for row in plan
    )
    assert not [row for row in plan if row.startswith("SCAN") or "TEMP B-TREE" in row], plan
