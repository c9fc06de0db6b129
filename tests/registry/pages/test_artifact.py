"""The page of an artifact: who states what, how to get it, its history, uses, locks and siblings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from registry.pages.visitor import Visitor
from registry.registry_client import GFX908, Parts, RegistryUnderTest

FACTS = {"num_cu": 120, "sramecc": "+", "xnack": "-"}


@pytest.fixture
def published(registry: RegistryUnderTest, parts: Parts) -> dict[str, Any]:
    """A program for an MI100."""
    claim = {"name": "<b>night</b>.onnx", "inputs": []}
    status, said = registry.publish(GFX908, parts.gpu_key(), attributes=FACTS, model=claim)
    assert status == 201
    found: dict[str, Any] = said
    return found


def data(visitor: Visitor, path: str) -> Any:
    reply = visitor.send("GET", path)
    assert reply.status == 200, reply.data
    return json.loads(reply.data)


def test_who_states_what_and_how_to_get_it(
    signed_in: Callable[..., Visitor], published: dict[str, Any], parts: Parts
) -> None:
    visitor, path = signed_in("vision", "fetch"), f"/artifacts/{published['id'][:12]}"
    page, said = visitor.page(path), visitor.text(path)
    assert "&lt;b&gt;night&lt;/b&gt;.onnx" in page and "<b>night" not in page
    assert "read from the file" in said and "a claim, not verified" in said
    model = published["key"]["model"][:19]
    command = f"mxr fetch {model} --arch gfx908:sramecc+:xnack- --num-cu 120 --rocm 7.2 --migraphx 2.15"
    assert f"{command} --input x=4,3,32,32 --offload-copy --fast-math --for triton" in said
    assert "--for driver" not in said and "--for ort" not in said, "their flags are others"
    assert "Code for gfx908:sramecc+:xnack-" in said and "weights" in said


def test_its_history_uses_locks_and_siblings(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], published: dict[str, Any], parts: Parts
) -> None:
    other = registry.publish(GFX908, parts.gpu_key(rocm="6.4"), attributes=FACTS)[1]
    registry.ok("POST", f"/v1/artifacts/{published['id']}/promote")
    registry.ok("PUT", "/v1/locks/prod", {"artifacts": [published["id"]]})
    registry.call("POST", "/v1/uses", {"uses": [{"id": published["id"], "count": 5, "ago": 86_400.0}]})
    visitor = signed_in()
    found = data(visitor, f"/artifacts/{published['id']}.json")
    assert found["locks"] == ["prod"] and sum(found["uses"]) == 5 and found["uses"][-1] == 0
    assert [each["kind"] for each in found["events"][:2]] == ["artifact.promote", "artifact.publish"]
    (sibling,) = found["siblings"]
    assert sibling["id"] == other["id"]
    assert sibling["differences"] == [{"field": "rocm", "this": "7.2", "sibling": "6.4"}]
    said = visitor.text(f"/artifacts/{published['id']}")
    assert "held by 1 lock" in said and "Promoted" in said and "prod" in said


def test_why_a_consumer_cannot_use_it_is_said(signed_in: Callable[..., Visitor], published: dict[str, Any]) -> None:
    said = signed_in().text(f"/artifacts/{published['id']}")
    assert "Not for: " in said
    assert "It loads programs that a session of ONNX Runtime recorded; this one is of the form whole." in said


def test_what_a_worker_built_leads_to_its_job(registry: RegistryUnderTest, signed_in: Callable[..., Visitor]) -> None:
    parts = Parts(registry.register_model())
    registry.submit(parts.ref_key())
    job = registry.finish(registry.claim(registry.register_worker()))
    assert f'href="../jobs/{job["id"]}"' in signed_in().page(f"/artifacts/{job['artifact']}")
    assert "../jobs/" not in signed_in("vision", "fetch").page(f"/artifacts/{job['artifact']}")


def test_one_without_bytes_says_so(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], published: dict[str, Any]
) -> None:
    registry.rows.execute(f"UPDATE artifacts SET lost_at = 1 WHERE id = '{published['id']}'")
    assert "bytes lost" in signed_in().text(f"/artifacts/{published['id']}")


@pytest.mark.parametrize("id", ["0" * 64, "x", "../../etc", "%00", "<script>"])
def test_what_is_not_there(signed_in: Callable[..., Visitor], id: str) -> None:
    reply = signed_in().send("GET", f"/artifacts/{id}")
    assert reply.status in (404, 422) and b"<script>" not in reply.data
