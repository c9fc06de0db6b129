"""Many at one moment over the same rows: one of them is first, the others find what it did, and nobody fails."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from harness.workers import registration_of
from registry.registry_client import ONNX, Parts, RegistryUnderTest

MANY = 8
ROUNDS = 4


@pytest.fixture(scope="module")
def both(server: RegistryUnderTest) -> Iterator[tuple[Any, Any]]:
    """Two registries on one database."""
    second = type(server)(server.data, rows=server.rows)
    yield server, second
    second.stop()


def at_once(ask: Callable[[int], tuple[int, Any]], many: int = MANY) -> list[tuple[int, Any]]:
    """What each of `many` got, all of whom asked at one moment."""
    gate = Barrier(many)

    def one(number: int) -> tuple[int, Any]:
        gate.wait()
        return ask(number)

    with ThreadPoolExecutor(many) as pool:
        return list(pool.map(one, range(many)))


def test_a_worker_registers_at_two_registries(both: Any) -> None:
    can = {"targets": [{"arch": "ref", "kind": "ref"}], "toolchain": {"migraphx": "2.16.0"}}
    for n in range(ROUNDS):
        body = registration_of(f"worker {n}", can)
        found = at_once(lambda number, body=body: both[number % 2].call("POST", "/v1/workers", body))
        assert {status for status, _ in found} <= {200, 201}, found
        assert len({said["id"] for _, said in found}) == 1


def test_a_new_model_is_registered(both: Any) -> None:
    for n in range(ROUNDS):
        stated = both[0].registration(ONNX + b"\x32\x03%03d" % n)  # with a doc_string of its own
        found = at_once(lambda number, stated=stated: both[number % 2].call("POST", "/v1/models", stated))
        assert {status for status, _ in found} <= {200, 201}, found
        known = [each["model"] for each in both[0].call("GET", "/v1/models")[1]["items"]]
        assert known.count(stated["model"]) == 1


def test_programs_of_one_new_model_are_published(both: Any, parts: Parts) -> None:
    """Of different keys, and the same one twice: the model is new to all of them."""
    manifest = both[0].manifest(parts.ref)
    for n in range(2):
        model = f"sha256:{n + 100:064x}"
        stated = {"name": "m.onnx", "inputs": []}

        def publish(number: int, model: str = model, stated: Any = stated) -> tuple[int, Any]:
            key = parts.ref_key(model=model, env={"MIGRAPHX_MLIR_TUNE_LIMIT": str(number // 2)})
            body = {"key": key, "manifest": manifest, "model": stated, "intent": {"also_for": True}}
            return both[number % 2].call("POST", "/v1/artifacts", body)

        found = at_once(publish)
        assert sorted(status for status, _ in found) == [200] * (MANY // 2) + [201] * (MANY // 2), found
        assert len(both[0].call("GET", f"/v1/artifacts?model={model}")[1]["items"]) == MANY // 2


def test_each_promotion_has_its_place(both: Any, parts: Parts) -> None:
    """The latest wins, so that no two may be the latest."""
    key = parts.gpu_key("gfx90a")
    ids = [both[0].publish(data, key, attributes={"sramecc": "+", "xnack": "-"})[1]["id"] for data in parts.same_key]
    found = at_once(lambda n: both[n % 2].call("POST", f"/v1/artifacts/{ids[n % len(ids)]}/promote"))
    assert {status for status, _ in found} <= {200, 201}, found
    assert both[0].rows.execute("SELECT max(promoted) FROM artifacts") == [(MANY,)]


def test_the_same_blobs_are_asked_for_in_any_order(both: Any) -> None:
    blobs = [both[0].upload(b"blob %d" % n) for n in range(40)]
    orders = [random.Random(n).sample(blobs, len(blobs)) for n in range(MANY)]
    for _ in range(ROUNDS):
        found = at_once(lambda n: both[n % 2].call("POST", "/v1/blobs/missing", {"blobs": orders[n]}))
        assert [said["missing"] for _, said in found] == [[]] * MANY, found


def test_the_same_blob_arrives(both: Any) -> None:
    for n in range(ROUNDS):
        data = b"the same bytes %d" % n
        names = at_once(lambda number, data=data: (0, both[number % 2].upload(data)["sha256"]))
        assert both[0].rows.execute(f"SELECT count(*) FROM blobs WHERE sha256 = '{names[0][1]}'") == [(1,)]


def test_each_miss_counts(both: Any, parts: Parts) -> None:
    found = at_once(lambda n: both[n % 2].call("POST", "/v1/resolve", {"key": parts.gpu_key("gfx1201")}))
    assert {status for status, _ in found} == {404}
    (miss,) = both[0].call("GET", "/v1/misses")[1]["items"]
    # A miss that meets a busy database for longer than a moment is let go; it is a count, no account.
    assert MANY // 2 <= miss["count"] <= MANY


def test_what_a_resolve_finds_stays_whole_while_it_is_removed(both: Any, parts: Parts) -> None:
    """Publish, remove and resolve the same artifact: each answer is one of those that a moment could give."""
    body = {"key": parts.gpu_key(), "manifest": both[0].manifest(parts.gfx908), **parts.explicit}
    body["intent"] = {"restore": True}
    id = both[0].call("POST", "/v1/artifacts", body)[1]["id"]

    def work(number: int) -> tuple[int, Any]:
        registry = both[number % 2]
        if number % 4 == 0:
            return registry.call("DELETE", f"/v1/artifacts/{id}?force=yes")
        if number % 4 == 1:
            return registry.call("POST", "/v1/artifacts", body)
        return registry.call("POST", "/v1/resolve", {"key": body["key"]})

    for _ in range(ROUNDS):
        for status, said in at_once(work):
            assert status in (200, 201, 404), said
            assert status == 404 or json.dumps(said).count(id) >= 1
