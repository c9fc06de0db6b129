"""The first page: why hosts got no program and what helps, in words that are true, for those who may know."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from registry.pages.visitor import Visitor
from registry.registry_client import GFX908, Parts, RegistryUnderTest, gpu_capabilities, marked

UNKNOWN = "sha256:" + "5b1e07c2a9d4" * 5 + "0000"
EVIL = "\"><img src=x onerror=alert(1)>'&amp;.onnx"


def miss(registry: RegistryUnderTest, key: Any, host: str = "", **constraints: Any) -> None:
    headers = {"mxr-host": host} if host else {}
    assert registry.call("POST", "/v1/resolve", {"key": key, "constraints": constraints}, headers)[0] == 404


def first(visitor: Visitor, query: str = "") -> Any:
    reply = visitor.send("GET", f"/misses.json{query}")
    assert reply.status == 200, reply.data
    return json.loads(reply.data)["misses"][0]


def test_an_empty_registry_shows_how_to_begin(registry: RegistryUnderTest, signed_in: Callable[..., Visitor]) -> None:
    registry.rows.execute("DELETE FROM tallies")
    said = signed_in().text()
    assert "Nothing here yet" in said and f"export MXR_REGISTRY={registry.url}" in said and "mxr-worker run" in said


def test_without_a_miss_the_page_says_so(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    registry.publish(GFX908, parts.gpu_key(), **parts.explicit)
    assert "Every request of the last 24 h was answered." in signed_in().text()


@pytest.mark.parametrize(
    ("changes", "constraints", "why", "state"),
    [
        (
            {"rocm": "10.2", "migraphx": "2.19"},
            {},
            "Asked for ROCm 10.2 and MIGraphX 2.19; the nearest program is for ROCm 7.2 and MIGraphX 2.15.",
            "needs a worker",
        ),
        ({"arch": "gfx1201"}, {}, "Asked for gfx1201; the nearest program is for gfx908.", "needs a worker"),
        ({}, {"num_cu": 130}, "Asked for 130 CUs; the nearest program is for 120 CUs.", "can be accepted"),
        ({}, {"xnack": "+"}, "Asked for xnack+; the nearest program is for xnack-.", "nobody compiles it"),
        ({"precision": "fp16"}, {}, "Asked for fp16; the nearest program is for fp32.", "nobody compiles it"),
        (
            {"inputs": {"x": [8, 3, 32, 32]}},
            {},
            "Asked for x 8×3×32×32; the nearest program is for x 4×3×32×32.",
            "nobody compiles it",
        ),
        ({"model": UNKNOWN}, {}, "The registry knows no model 5b1e07c2a9d4.", "unknown model"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_why_and_what_helps(
    registry: RegistryUnderTest,
    signed_in: Callable[..., Visitor],
    parts: Parts,
    changes: dict[str, Any],
    constraints: dict[str, Any],
    why: str,
    state: str,
) -> None:
    registry.publish(GFX908, parts.gpu_key(), attributes={"num_cu": 120, "sramecc": "+", "xnack": "-"})
    registry.register_worker("one", gpu_capabilities())
    if changes.get("precision") or changes.get("inputs") or constraints.get("xnack"):
        both = gpu_capabilities()
        both["targets"] = [{**both["targets"][0], "xnack": sign} for sign in "+-"]
        registry.register_worker("both", both)
    key = parts.gpu_key(**{"arch": "gfx908", **changes})
    miss(registry, key, "node-17", **constraints)
    visitor = signed_in()
    found = first(visitor)
    assert (found["why"], found["now"]["state"]) == (why, state)
    assert why.rstrip(".") in visitor.text().replace(" ;", ";").replace(" .", ".")
    if state != "unknown model":
        model = key["model"][:19]
        assert any(f"mxr fetch {model}" in command for command in found["now"]["commands"])


def test_the_command_asks_for_what_was_missed(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    """By the table of facts, with the flags of the request."""
    registry.publish(GFX908, parts.gpu_key(), **parts.explicit)
    env = marked("command")
    key = parts.gpu_key(precision="fp16", offload_copy=False, env=env, rocm="10.2")
    miss(registry, key, num_cu=120, sramecc="+", xnack="-", migraphx_patch="2.15.0")
    (command, *_) = [each for each in first(signed_in())["now"]["commands"] if each.startswith("mxr fetch")]
    ((name, value),) = env.items()
    assert command == (
        f"mxr fetch {key['model'][:19]} --arch gfx908:sramecc+:xnack- --num-cu 120 --rocm 10.2 --migraphx 2.15.0 "
        f"--input x=4,3,32,32 --precision fp16 --no-offload-copy --fast-math --env {name}={value} --on-miss ask"
    )


def test_a_compile_that_runs_is_told_to_those_who_asked_for_it(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    parts = Parts(registry.register_model())
    worker = registry.register_worker("one", gpu_capabilities())
    miss(registry, parts.gpu_key())
    job = registry.submit(parts.gpu_key())
    found = first(signed_in())
    assert (found["now"]["state"], found["now"]["job"]) == ("compiling", job["id"])
    registry.claim(worker)
    assert first(signed_in("vision", "fetch", "ask"))["now"]["job"] is None


def test_a_failure_is_told(registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts) -> None:
    parts = Parts(registry.register_model())
    worker = registry.register_worker("one", gpu_capabilities())
    registry.submit(parts.gpu_key())
    registry.fail(registry.claim(worker), "permanent", message="operator not supported: <GroupNorm>")
    miss(registry, parts.gpu_key())
    visitor = signed_in()
    found = first(visitor)["now"]
    assert found["state"] == "compile failed" and found["other"][0][1].endswith("--on-miss ask --retry")
    assert "operator not supported: &lt;GroupNorm&gt;" in visitor.page()
    assert "Failed lately" in visitor.text()


def test_what_is_there_by_now_is_told(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    miss(registry, parts.gpu_key())
    registry.publish(GFX908, parts.gpu_key(), **parts.explicit)
    assert first(signed_in())["now"]["state"] == "answered since"


def test_what_a_token_may_not_ask_is_not_shown(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    parts = Parts(registry.register_model())
    miss(registry, parts.gpu_key(), "node-17")
    visitor = signed_in("vision", "fetch")
    data = json.loads(visitor.send("GET", "/misses.json").data)
    assert (data["queue"], data["failed"], data["storage"]) == (None, None, None)
    assert data["misses"][0]["now"]["state"] == "missed" and data["misses"][0]["asked_by"] == []
    said = visitor.text()
    assert "node-17" not in said and "Queue" not in said and "Storage" not in said
    assert "node-17" in signed_in().text()


@pytest.mark.parametrize("name", [EVIL, "\u202enurtset.onnx", "a\u0301" * 80 + ".onnx", "x" * 250, "- -.onnx"])
def test_names_are_text(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts, name: str
) -> None:
    parts = Parts(registry.register_model(name=name))
    miss(registry, parts.gpu_key("gfx1201"))
    visitor = signed_in()
    page = visitor.page()
    assert "<img" not in page and "onerror=alert(1)>" not in page
    assert first(visitor)["model_name"] == name
    assert len(page) < 100_000


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?arch=%22%3E%3Cscript%3E", 200),
        ("?by=%27%20OR%201=1--", 200),
        ("?name=%00", 200),
        ("?reason=everything", 200),
        ("?hours=1e9", 422),
        ("?hours=nan", 422),
        ("?limit=1000", 422),
        ("?after=x", 422),
        ("?name=" + "%25" * 300, 200),
        ("?who=me", 422),
        ("?" + "a=1&" * 500, 422),
        ("?name=%ff%fe", 200),
    ],
)
def test_filters_with_everything(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts, query: str, status: int
) -> None:
    miss(registry, parts.gpu_key("gfx1201"))
    visitor = signed_in()
    reply = visitor.send("GET", f"/{query}")
    assert reply.status in (status, 422), reply.data[:300]
    assert b"<script>" not in reply.data and b"text/html" in reply.headers["content-type"].encode()


def test_pages_of_many_misses_are_small_and_lead_on(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    for number in range(45):
        miss(registry, parts.gpu_key("gfx1201", env=marked(str(number))), f"node-{number}")
    visitor = signed_in()
    path, seen = "/misses.json", []
    for _ in range(3):
        data = json.loads(visitor.send("GET", path).data)
        seen += [each["id"] for each in data["misses"]]
        path = f"/misses.json?after={data['next']}"
    assert len(seen) == len(set(seen)) == 45 and data["next"] is None
    page = visitor.page()
    assert "Older" in page and len(page) < 100_000 and "45 requests" in visitor.text()
    assert data["counts"]["hosts"] == 45


def test_the_same_at_the_same_address_with_a_token_of_a_program(
    registry: RegistryUnderTest, parts: Parts, token: Callable[..., str]
) -> None:
    miss(registry, parts.gpu_key("gfx1201"))
    header = {"authorization": f"Bearer {token('vision', 'fetch')}"}
    assert registry.call("GET", "/misses.json?arch=gfx1201", None, header)[1]["counts"]["requests"] == 1
    assert registry.call("GET", "/misses.json", None, {"authorization": "Bearer x"})[0] == 401


def test_large_requests_make_no_large_page(
    registry: RegistryUnderTest, signed_in: Callable[..., Visitor], parts: Parts
) -> None:
    """Two hundred inputs with long names, in each of twenty requests, and as many archs as clients can think of."""
    registry.publish(GFX908, parts.gpu_key(), **parts.explicit)
    for number in range(20):
        inputs = {f"{'<' * 40}{at:03d}": [number + 1, 3, 224, 224] for at in range(200)}
        miss(registry, parts.gpu_key(inputs=inputs))
    visitor = signed_in()
    for path in ("/", "/matrix", f"/explain?miss={first(visitor)['id']}"):
        page = visitor.page(path)
        assert len(page) < 100_000 and "<<<" not in page, path
    registry.rows.execute("UPDATE misses SET arch = request || '<' || request")
    assert len(visitor.page()) < 100_000
