"""The matrix: each shape with its state, a page at a time, whatever the number of models."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from registry.pages.visitor import Visitor
from registry.registry_client import GFX908, Parts, RegistryUnderTest, gpu_capabilities, on_sqlite

FACTS = {"num_cu": 120, "sramecc": "+", "xnack": "-"}


def data(visitor: Visitor, query: str = "") -> Any:
    reply = visitor.send("GET", f"/matrix.json{query}")
    assert reply.status == 200, reply.data
    return json.loads(reply.data)


def cells(found: Any) -> dict[tuple[str, str], dict[str, str]]:
    """The state of each shape, by precision and arch."""
    return {
        (row["precision"], target["arch"]): {each["shape"]: each["state"] for each in cell}
        for row in found["rows"]
        for target, cell in zip(found["targets"], row["cells"], strict=True)
        if cell
    }


@pytest.fixture
def filled(registry: RegistryUnderTest) -> str:
    """A model with each state; its identity."""
    parts = Parts(registry.register_model(name="night.onnx"))
    model = parts.model

    def key(batch: int, arch: str = "gfx908", **more: Any) -> Any:
        return parts.gpu_key(arch, inputs={"x": [batch, 3, 32, 32]}, **more)

    registry.rows.execute("DELETE FROM artifacts")
    registry.submit(key(8))
    registry.fail(registry.claim(registry.register_worker("two", gpu_capabilities())), "permanent")
    registry.submit(key(16))
    registry.claim(registry.register_worker("two", gpu_capabilities()))
    registry.submit(key(32))
    for batch in (16, 64):
        assert registry.call("POST", "/v1/resolve", {"key": key(batch)})[0] == 404
    assert registry.call("POST", "/v1/resolve", {"key": key(1, "gfx1201", precision="int8")})[0] == 404
    return model


def test_programs_misses_and_jobs_of_the_ref_target_are_shown(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor]
) -> None:
    parts = Parts(registry.register_model(name="reference.onnx"))
    registry.submit(parts.ref_key())
    registry.finish(registry.claim(registry.register_worker()))
    registry.submit(parts.ref_key(precision="fp32"))
    assert registry.call("POST", "/v1/resolve", {"key": parts.ref_key(migraphx="2.15")})[0] == 404
    visitor = signed_in()
    found = data(visitor, "?name=reference")
    assert [each["arch"] for each in found["targets"]] == ["ref", "ref"]
    states = {shape["state"] for row in found["rows"] for cell in row["cells"] for shape in cell}
    assert states == {"available", "queued", "missing"}
    assert "reference.onnx" in visitor.text("/matrix?arch=ref")


def test_each_shape_has_its_state(filled: str, signed_in: Callable[..., Visitor]) -> None:
    visitor = signed_in()
    found = cells(data(visitor))
    assert found["fp32", "gfx908"] == {"8": "failed", "16": "running", "32": "queued", "64": "missing"}
    assert found["int8", "gfx1201"] == {"1": "missing"}
    assert {row["model"] for row in data(visitor)["rows"]} == {filled}
    said = visitor.text("/matrix")
    assert "night.onnx" in said and "64 missing" in said


def test_a_program_that_is_there_is_available_whatever_was_asked(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    assert registry.call("POST", "/v1/resolve", {"key": parts.gpu_key()})[0] == 404
    claim = {"name": "pushed.onnx", "inputs": []}
    made = registry.publish(GFX908, parts.gpu_key(), attributes=FACTS, model=claim)[1]
    visitor = signed_in()
    (row,) = data(visitor)["rows"]
    assert row["cells"] == [[{"shape": "4", "state": "available", "id": made["id"]}]]
    registry.rows.execute("UPDATE artifacts SET lost_at = 1")
    assert cells(data(visitor)) == {("fp32", "gfx908"): {"4": "lost"}}


def test_jobs_of_others_are_not_seen(filled: str, signed_in: Callable[..., Visitor]) -> None:
    assert filled
    for scopes in (("fetch",), ("fetch", "ask")):
        found = cells(data(signed_in("eve", *scopes)))
        assert found["fp32", "gfx908"] == {"16": "missing", "64": "missing"}


@pytest.mark.parametrize(
    ("query", "shapes"),
    [
        ("?state=missing&arch=gfx908", {"64", "16"}),
        ("?state=queued", {"32"}),
        ("?arch=gfx1201", {"1"}),
        ("?rocm=6.4", set()),
        ("?name=night", {"1", "8", "16", "32", "64"}),
        ("?name=day", set()),
    ],
)
def test_filters(filled: str, signed_in: Callable[..., Visitor], query: str, shapes: set[str]) -> None:
    assert filled
    found = cells(data(signed_in(), query))
    assert {shape for cell in found.values() for shape in cell} == shapes


@pytest.mark.parametrize("query", ["?state=x", "?after=x", "?limit=0", "?columns=some", "?after=WyJqb2JzIiwxXQ"])
def test_what_is_no_filter(signed_in: Callable[..., Visitor], query: str) -> None:
    assert signed_in().send("GET", f"/matrix{query}").status == 422


@on_sqlite
def test_ten_thousand_models_are_paged_by_name(registry: RegistryUnderTest, signed_in: Callable[..., Visitor]) -> None:
    registry.register_model(name="first.onnx")
    columns = [row[1] for row in registry.rows.execute("PRAGMA table_info(models)")]
    names = ", ".join(name for name in columns if name not in ("seq", "model", "name"))
    registry.rows.execute(
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 10000) "
        f"INSERT INTO models (model, name, {names}) "
        f"SELECT printf('sha256:%064x', x), printf('m%05d<b>.onnx', x), {names} FROM n, models"
    )
    registry.rows.execute(
        "INSERT INTO misses (namespace, request, digest, request_json, nearest_json, count, first_at, last_at, model, "
        "arch, reason) SELECT namespace, printf('%064x', seq), printf('%064x', seq), "
        '\'{"key":{"arch":"gfx908","kind":"gpu","rocm":"7.2","migraphx":"2.15","precision":"fp32",'
        '"calibration": null,"inputs":{"x":[1]},"model":"\' || model || \'"}}\', \'[]\', 1, 1, seq, model, '
        "'gfx908', 'no_program' FROM models WHERE name < 'm00100'"
    )
    visitor, path, seen = signed_in(), "", []
    for _ in range(9):
        found = data(visitor, path)
        seen += [row["name"] for row in found["rows"]]
        path = f"?after={found['next']}"
    assert len(seen) == len(set(seen)) and seen == sorted(seen) and len(seen) > 90
    page = visitor.page("/matrix")
    assert len(page) < 100_000 and "m00005<b>" not in page and "m00005&lt;b&gt;.onnx" in page
