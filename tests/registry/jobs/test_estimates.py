"""Estimates: by this model, else by the same graph with other weights, on the same arch; else none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import numpy_helper
from registry.registry_client import Parts
from sqlalchemy import text

from mxr_registry.database import schema
from mxr_registry.database.session import Database, PreparedQuery
from mxr_registry.jobs import estimates


def sister(data: bytes, by: float) -> bytes:
    """The same graph with other weights."""
    model = onnx.load_from_string(data)
    for weight in model.graph.initializer:
        array = numpy_helper.to_array(weight)
        if array.dtype.kind == "f":
            weight.CopyFrom(numpy_helper.from_array(array * array.dtype.type(by), weight.name))
    return model.SerializeToString()


def other(data: bytes) -> bytes:
    """Another graph with the same inputs and outputs."""
    model = onnx.load_from_string(data)
    last = model.graph.node[-1]
    last.output[0], name = "before", last.output[0]
    model.graph.node.add(op_type="Relu", input=["before"], output=[name])
    return model.SerializeToString()


def compile_once(registry: Any, parts: Parts, model: str, seconds: float, **more: Any) -> None:
    registry.submit(parts.ref_key(model=model, **more))
    lease = registry.claim(registry.register_worker())
    artifact = registry.publication(lease) | {"provenance": {"compile_seconds": seconds}}
    registry.ok("POST", f"/v1/jobs/{lease['job']}/finish", {"lease": lease["secret"], "artifact": artifact})


def estimate(registry: Any, key: dict[str, Any]) -> tuple[float | None, str | None]:
    job = registry.submit(key)
    registry.ok("POST", f"/v1/jobs/{job['id']}/cancel")
    return job["estimate"], job["estimate_from"]


def test_of_the_same_graph_with_other_weights(registry: Any, parts: Parts) -> None:
    mine = registry.register_model(sister(parts.onnx, 0.5))
    stranger = registry.register_model(other(parts.onnx))
    # The sisters need names of their own, as `clear` leaves models.
    sisters = [registry.register_model(sister(parts.onnx, by)) for by in (2.0, 3.0)]
    compile_once(registry, parts, stranger, 99.0)
    assert estimate(registry, parts.ref_key(model=mine)) == (None, None)
    compile_once(registry, parts, sisters[0], 10.0)
    compile_once(registry, parts, sisters[1], 20.0)
    compile_once(registry, parts, sisters[1], 60.0, env={"MIGRAPHX_ENABLE_CK": "1"})
    words = "3 compiles of the same graph with other weights for the ref target"
    assert estimate(registry, parts.ref_key(model=mine)) == (20.0, words)
    assert estimate(registry, parts.gpu_key(model=mine)) == (None, None), "another arch tells nothing"
    compile_once(registry, parts, mine, 5.0)
    found = estimate(registry, parts.ref_key(model=mine, env={"MIGRAPHX_ENABLE_NHWC": "1"}))
    assert found == (5.0, "one compile of this model for the ref target"), "its own go first"


@pytest.mark.parametrize("statement", [row[1] for row in (*estimates.ON_REF, *estimates.ON_ARCH)])
def test_no_estimate_reads_a_whole_table(tmp_path: Path, statement: Any) -> None:
    db = Database(f"sqlite:///{tmp_path / 'registry.db'}")
    schema.upgrade(db)
    values = {"namespace": "default", "model": "m", "arch": "gfx908"}
    names = {"namespace_1": "default", "model_1": "m", "origin_1": "built"} | {f"param_{n}": 20 for n in range(1, 5)}
    with db.reading() as session:
        plan = session.execute(text(f"EXPLAIN QUERY PLAN {PreparedQuery(statement).sqlite}"), values | names).all()
    db.close()
    assert plan and not [row.detail for row in plan if row.detail.startswith("SCAN")], plan
