"""Misses: why, by whom, how often; who may know it; and which the filters find."""

from __future__ import annotations

from typing import Any

import pytest
from registry.registry_client import Parts, RegistryUnderTest

from mxr.errors import UsageError
from mxr_registry.artifacts import misses
from mxr_registry.database import tallies
from mxr_registry.database.session import Database


@pytest.fixture
def registry(server: RegistryUnderTest) -> RegistryUnderTest:
    server.clear()
    server.rows.execute("DELETE FROM tallies WHERE hour > 0")
    return server


def ask(registry: RegistryUnderTest, key: Any, host: str = "", token: str = "", **constraints: Any) -> Any:
    headers = ({"mxr-host": host} if host else {}) | ({"authorization": f"Bearer {token}"} if token else {})
    status, said = registry.call("POST", "/v1/resolve", {"key": key, "constraints": constraints}, headers)
    assert status == 404, said
    return said


def listed(registry: RegistryUnderTest, query: str = "", token: str = "") -> list[Any]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    status, said = registry.call("GET", f"/v1/misses{query}", None, headers)
    assert status == 200, said
    return list(said["items"])


def token_of(registry: RegistryUnderTest, name: str) -> str:
    return str(registry.ok("POST", "/v1/tokens", {"name": name, "scopes": ["fetch"]})["secret"])


def test_who_asked_is_told_to_administrators_and_to_the_principal_itself(
    registry: RegistryUnderTest, parts: Parts
) -> None:
    serving, vision = token_of(registry, "serving"), token_of(registry, "vision")
    key = parts.gpu_key("gfx1201")
    for host in ("node-17", "node-18", "node-17"):
        ask(registry, key, host, serving)
    ask(registry, key, "node-31", vision)
    (seen,) = listed(registry)
    assert (seen["count"], seen["hosts"]) == (4, 3)
    asked = [(each["principal"], each["host"], each["count"]) for each in seen["asked_by"]]
    assert asked == [("vision", "node-31", 1), ("serving", "node-17", 2), ("serving", "node-18", 1)]
    (own,) = listed(registry, token=vision)
    assert (own["hosts"], [each["host"] for each in own["asked_by"]]) == (3, ["node-31"])
    assert [len(listed(registry, f"?by={name}")) for name in ("node-18", "serving", "nobody")] == [1, 1, 0]
    assert [len(listed(registry, f"?by={name}", vision)) for name in ("node-18", "node-31")] == [0, 1]


@pytest.mark.parametrize("host", ["<script>", "a b", "x" * 254, "é"])
def test_what_is_no_name_of_a_host_is_not_kept(registry: RegistryUnderTest, parts: Parts, host: str) -> None:
    ask(registry, parts.gpu_key("gfx1201"), host)
    (seen,) = listed(registry)
    assert (seen["hosts"], seen["asked_by"][0]["host"]) == (0, "")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("night%20vision.onnx", "night vision.onnx"),
        ("caf%C3%A9%1B%3Cb%3E.onnx", "caf\xe9\x1b<b>.onnx"),
        ("..%2F..%2Fsecret/m.onnx", "m.onnx"),
        ("%FF.onnx", "\N{REPLACEMENT CHARACTER}.onnx"),
        *(("a%00b", None), ("", None), ("x" * 1_001, None)),
    ],
)
def test_a_model_that_is_unknown_is_called_as_its_host_calls_it(
    registry: RegistryUnderTest, parts: Parts, sent: str, kept: str | None
) -> None:
    request = {"key": parts.gpu_key(model="sha256:" + "9" * 64)}
    assert registry.call("POST", "/v1/resolve", request, {"mxr-model-name": sent})[0] == 404
    assert [each["model_name"] for each in listed(registry)] == [kept]
    assert len(listed(registry, "?name=night")) == (kept == "night vision.onnx")


def test_the_name_of_a_known_model_is_not_what_a_host_calls_it(registry: RegistryUnderTest) -> None:
    known = Parts(registry.register_model(name="night-shift.onnx"))
    registry.call("POST", "/v1/resolve", {"key": known.gpu_key("gfx1201")}, {"mxr-model-name": "other.onnx"})
    assert [each["model_name"] for each in listed(registry)] == ["night-shift.onnx"]


def test_why_there_was_no_program(registry: RegistryUnderTest, parts: Parts) -> None:
    registry.publish(parts.gfx908, parts.gpu_key(), attributes={"sramecc": "+", "xnack": "-", "num_cu": 100})
    ask(registry, parts.gpu_key("gfx90a"))
    ask(registry, parts.gpu_key(rocm="6.4"))
    ask(registry, parts.gpu_key(), num_cu=120)
    ask(registry, parts.gpu_key(precision="fp16"))
    ask(registry, parts.gpu_key(model="sha256:" + "9" * 64))
    found = {each["reason"]: each for each in listed(registry)}
    assert set(found) == {"arch", "toolchain", "hardware", "precision", "unknown_model"}
    assert found["hardware"]["accept"]["allow"] == ["cu"] and found["arch"]["accept"] is None
    for reason, miss in found.items():
        assert [each["id"] for each in listed(registry, f"?reason={reason}")] == [miss["id"]]
    assert len(listed(registry, "?arch=gfx90a:xnack-")) == 1
    assert len(listed(registry, f"?model={parts.gpu_key()['model'][:20]}")) == 4
    assert len(listed(registry, "?hours=1")) == 5


def test_a_partial_request_is_recorded_with_what_it_leaves_open(registry: RegistryUnderTest, parts: Parts) -> None:
    model = parts.gpu_key()["model"]
    body = {"model": model, "kind": "gpu", "vendor": "amd", "arch": "gfx1201", "inputs": {"x": [None, 3, 32, 32]}}
    for _ in range(2):
        assert registry.call("POST", "/v1/candidates", body, {"mxr-host": "node-71"})[0] == 404
    (seen,) = listed(registry)
    assert (seen["count"], seen["hosts"], seen["request"]["arch"]) == (2, 1, "gfx1201")
    assert seen["open"] == ["rocm", "migraphx", "offload_copy", "fast_math", "inputs.x"]


def test_names_of_models_find_their_misses(registry: RegistryUnderTest, parts: Parts) -> None:
    model = registry.register_model(name="night-shift.onnx")
    ask(registry, parts.gpu_key("gfx1201", model=model))
    assert [each["model_name"] for each in listed(registry, "?name=night")] == ["night-shift.onnx"]
    assert listed(registry, "?name=shift") == []


def test_misses_are_counted_by_the_hour(registry: RegistryUnderTest, parts: Parts) -> None:
    for _ in range(3):
        ask(registry, parts.gpu_key("gfx1201"))
    db = Database(registry.rows.url)
    with db.reading() as session:
        assert sum(tallies.by_hour(session, "default", tallies.MISSED, 2)) == 3
    db.close()


def test_counts_of_misses_by_reason_arch_and_hosts(registry: RegistryUnderTest, parts: Parts) -> None:
    for arch, host in (("gfx1201", "node-1"), ("gfx1100", "node-1"), ("gfx1100", "node-2")):
        ask(registry, parts.gpu_key(arch), host)
    db = Database(registry.rows.url)

    def counts(**filters: Any) -> dict[str, Any]:
        with db.reading() as session:
            return misses.count_misses(session, "default", misses.MissFilters(**filters), None)

    found = counts(hours=24)
    assert found["archs"] == {"gfx1201": 1, "gfx1100": 1} and found["hosts"] == 2
    assert sum(found["reasons"].values()) == 2
    assert [counts(arch=arch)["hosts"] for arch in ("gfx1201", "gfx1100", "gfx908")] == [1, 2, 0]
    assert counts(by="node-2")["archs"] == {"gfx1100": 1} and counts(by="nobody")["hosts"] == 0
    with db.reading() as session:
        missed = misses.list_misses(session, "default", misses.MissFilters(), None)["items"][0]
        assert misses.show_miss(session, "default", missed["id"], None)["id"] == missed["id"]
    db.close()


@pytest.mark.parametrize("query", ["?hours=0", "?hours=-1", "?limit=0", "?name=" + "x" * 400, "?who=me", "?after=x"])
def test_filters_that_are_not_right_are_refused(registry: RegistryUnderTest, query: str) -> None:
    assert registry.call("GET", f"/v1/misses{query}")[0] == 422


def test_a_cursor_of_another_list_is_refused(registry: RegistryUnderTest) -> None:
    db = Database(registry.rows.url)
    with db.reading() as session, pytest.raises(UsageError):
        misses.list_misses(session, "default", misses.MissFilters(after="WyJqb2JzIiwxXQ"), None)
    db.close()
