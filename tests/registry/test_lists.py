"""Lists come in pages, bounded in bytes: each row once, whatever size clients gave it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from onnx import TensorProto, helper
from registry.registry_client import REF, RegistryUnderTest, gpu_capabilities, gpu_key, marked, ref_key

from mxr.client.registry import Client
from mxr.errors import Json, MxrError, UsageError
from mxr.settings import Settings
from mxr_registry.artifacts import catalog, locks, misses, models, usage
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database import paging
from mxr_registry.database.session import Database, Session
from mxr_registry.jobs import tracking, workers
from mxr_registry.json_text import to_json

NAMESPACE = "default"
COUNT = 5


@pytest.fixture(scope="module")
def filled(server: RegistryUnderTest) -> RegistryUnderTest:
    """Five of everything that is listed."""
    for number in range(COUNT):
        onnx = (Path(__file__).parents[1] / "data" / "models" / "convnet.onnx").read_bytes() + b"\x32\x01x" * number
        model = server.register_model(onnx)
        server.submit(ref_key(model))
        server.register_worker(f"w{number} & co", gpu_capabilities(num_cu=100 + number))
        _, artifact = server.publish(REF, ref_key(model, env=marked(str(number))))
        server.ok("PUT", f"/v1/locks/lock-{number}", {"artifacts": [artifact["id"]]})
        server.ok("POST", "/v1/uses", {"uses": [{"id": artifact["id"], "count": 1 + number // 2}]})
        server.error("POST", "/v1/resolve", {"key": gpu_key(model), "constraints": {}})
    return server


def listed_artifacts(session: Session, after: str | None) -> Json:
    return catalog.list_artifacts(session, NAMESPACE, catalog.ArtifactFilters(after=after))


def listed_jobs(session: Session, after: str | None) -> Json:
    return tracking.list_jobs(session, NAMESPACE, tracking.JobFilters(after=after))


def listed_models(session: Session, after: str | None) -> Json:
    return models.list_models(session, NAMESPACE, None, after)


def listed_workers(session: Session, after: str | None) -> Json:
    return workers.list_workers(session, JobRules(), NAMESPACE, after)


def listed_uses(session: Session, after: str | None) -> Json:
    return usage.list_usage(session, NAMESPACE, usage.UsageFilters(after=after))


LISTS: dict[str, Callable[[Session, str | None], Json]] = {
    "artifacts": listed_artifacts,
    "jobs": listed_jobs,
    "models": listed_models,
    "workers": listed_workers,
    "uses": listed_uses,
    "locks": lambda session, after: locks.list_locks(session, NAMESPACE, after),
    "misses": lambda session, after: misses.list_misses(session, NAMESPACE, misses.MissFilters(after=after), None),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("size", [1, 1_500])
def test_a_page_ends_at_its_size_and_the_pages_have_each_row_once(
    filled: RegistryUnderTest, monkeypatch: pytest.MonkeyPatch, name: str, size: int
) -> None:
    db = Database(filled.rows.url)

    def pages() -> Iterator[list[Any]]:
        after: str | None = None
        for _ in range(2 * COUNT):
            with db.reading() as session:
                page = json.loads(to_json(LISTS[name](session, after)))
            yield page["items"]
            after = page["next"]
            if after is None:
                return
        raise AssertionError("the list does not end")

    whole = [row for page in pages() for row in page]
    assert len(whole) == COUNT
    monkeypatch.setattr(paging, "MAX_PAGE", size)
    cut = list(pages())
    assert [row for page in cut for row in page] == whole
    assert all(len(page) == 1 or len(json.dumps(page)) < 1.2 * size + 200 for page in cut)
    if size == 1:
        assert [len(page) for page in cut] == [1] * COUNT
    db.close()


def test_names_of_models_are_searched_by_their_beginning(server: RegistryUnderTest) -> None:
    """Artifacts and jobs, by code points: wildcards of SQL are characters, and upper case is not lower case."""
    names = ("Net_1.onnx", "Net%1.onnx", "net_1.onnx", "Net_é.onnx", "Net_\U0001f600.onnx")
    for number, name in enumerate(names):
        onnx = (Path(__file__).parents[1] / "data" / "models" / "convnet.onnx").read_bytes() + b"\x32\x01y" * number
        model = server.register_model(onnx + b"\x32\x01z", name=name)
        server.submit(ref_key(model))
        server.publish(REF, ref_key(model, env=marked(name)))
        claim = {"name": f"claimed {name}", "inputs": []}
        server.publish(REF, ref_key(model, env=marked(f"2 {name}")), model=claim)

    def found(path: str, prefix: str) -> set[str]:
        reply = server.ok("GET", f"/v1/{path}?name={quote(prefix)}")
        return {each["model_name"] for each in reply["items"]}

    for path in ("artifacts", "jobs"):
        assert found(path, "Net_") == {"Net_1.onnx", "Net_é.onnx", "Net_\U0001f600.onnx"}
        assert found(path, "Net_1.onnx") == {"Net_1.onnx"} and found(path, "Net%") == {"Net%1.onnx"}
        assert found(path, "net") == {"net_1.onnx"} and found(path, "Net_1.onnx ") == set()
    assert found("artifacts", "claimed net") == {"claimed net_1.onnx"}, "what the publisher calls the model"
    assert found("jobs", "claimed") == set()


def test_pages_over_http(filled: RegistryUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(Settings(registry=filled.url, token=filled.tokens["admin"]))
    assert [each.name for each in client.workers()] == [f"w{number} & co" for number in range(COUNT)]
    assert [each.name for each in client.locks()] == [f"lock-{number}" for number in range(COUNT)]
    assert [each.count for each in client.usage(3)] == [3, 2, 2]
    assert len(client.usage(100)) == COUNT


@pytest.mark.parametrize("path", LISTS)
def test_a_limit_bounds_each_list_and_is_checked(filled: RegistryUnderTest, path: str) -> None:
    page = filled.ok("GET", f"/v1/{path}?limit=2")
    assert set(page) == {"items", "next"} and len(page["items"]) == 2
    rest = filled.ok("GET", f"/v1/{path}?limit=1000&after={page['next']}")
    assert rest["items"] and rest["next"] is None
    assert page["items"] + rest["items"] == filled.ok("GET", f"/v1/{path}")["items"]
    for wrong in ("0", "-1", "1000000000", "x", "", "1.5", "9" * 50):
        error = filled.error("GET", f"/v1/{path}?limit={wrong}")
        assert (error["status"], error["code"]) == (422, "usage") and error["detail"].startswith("limit: "), error


@pytest.mark.parametrize("path", LISTS)
def test_a_cursor_that_is_not_of_this_list_is_refused(filled: RegistryUnderTest, path: str) -> None:
    other = next(each for each in LISTS if each != path)
    foreign = filled.ok("GET", f"/v1/{other}?limit=1")["next"]
    made_up = paging.cursor(path, ("x", "y", "z"))
    for wrong in (foreign, made_up, "", "x", "17", "%00", "A" * 3_000, "bnVsbA", "W10", quote("W1sxXV0=\n")):
        error = filled.error("GET", f"/v1/{path}?after={wrong}")
        assert (error["status"], error["code"]) == (422, "usage"), (wrong, error)
        assert "after" in error["detail"] and len(error["detail"]) < 300


def test_rows_that_come_and_go_repeat_and_hide_no_other(server: RegistryUnderTest) -> None:
    server.rows.execute("DELETE FROM locks")
    for name in ("b", "d", "f", "h"):
        server.ok("PUT", f"/v1/locks/{name}", {"artifacts": []})
    page = server.ok("GET", "/v1/locks?limit=2")
    server.ok("DELETE", "/v1/locks/b")
    server.ok("DELETE", "/v1/locks/d")
    server.ok("PUT", "/v1/locks/a", {"artifacts": []})
    rest = server.ok("GET", f"/v1/locks?limit=2&after={page['next']}")
    assert [each["name"] for each in page["items"] + rest["items"]] == ["b", "d", "f", "h"]


def test_a_list_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(Settings())
    monkeypatch.setattr("mxr.client.registry.MAX_PAGES", 7)
    asked: list[str] = []

    def exchange(kind: Any, method: str, path: str) -> Any:
        asked.append(path)
        return kind((), next=f"{len(asked)}&x")

    monkeypatch.setattr(client, "exchange", exchange)
    with pytest.raises(MxrError, match="does not end"):
        client.locks()
    assert asked[:2] == ["/locks", "/locks?after=1%26x"] and len(asked) == 7


def test_names_of_inputs_of_a_model_are_bounded(server: RegistryUnderTest) -> None:
    inputs = [helper.make_tensor_value_info("x" * 70_000, TensorProto.FLOAT, [1])]
    output = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])]
    node = helper.make_node("Identity", ["x" * 70_000], ["y"])
    made = helper.make_model(helper.make_graph([node], "g", inputs, output))
    error = server.error("POST", "/v1/models", server.registration(made.SerializeToString()))
    assert error["code"] == "usage" and "65536 characters" in error["detail"]


def test_a_page_of_large_rows_is_small(server: RegistryUnderTest) -> None:
    """300 misses of 30 KB: three pages of at most 4 MiB."""
    server.rows.execute("DELETE FROM misses")
    name = "x" * 26_000
    for number in range(300):
        key = ref_key("sha256:" + sha256(b"%d" % number).hexdigest(), inputs={name: [1]})
        server.error("POST", "/v1/resolve", {"key": key, "constraints": {}})
    found, after = [], ""
    while after is not None:
        reply = server.request("GET", f"/v1/misses{after and '?after='}{after}")
        assert len(reply.data) <= paging.MAX_PAGE + 1_000
        page = json.loads(reply.data)
        found += [row["digest"] for row in page["items"]]
        after = page["next"]
    assert len(found) == len(set(found)) == 300


def test_a_cursor_is_a_position_of_one_list() -> None:
    made = paging.cursor("misses", (1.5, "é"))
    assert re.fullmatch("[A-Za-z0-9_-]+", made) and paging.read_cursor("misses", made, float, str) == [1.5, "é"]
    wrong = (
        ("uses", made, float, str),
        ("misses", made, int, str),
        ("misses", made, float),
        ("misses", paging.cursor("misses", (True,)), int),
        ("misses", paging.cursor("misses", (-1,)), int),
        ("misses", paging.cursor("misses", (1 << 53,)), int),
        ("misses", paging.cursor("misses", ("a\0b",)), str),
    )
    for kind, text, *types in wrong:
        with pytest.raises(UsageError, match="after"):
            paging.read_cursor(kind, text, *types)
