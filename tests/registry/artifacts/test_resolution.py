"""Resolving over HTTP: hits, misses that say why and what to do, and what is found by which name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from registry.registry_client import Parts, RegistryUnderTest, Start, on_sqlite

from mxr.artifact.attributes import Request
from mxr.artifact.key import Key
from mxr.artifact.limits import MAX_CANDIDATES
from mxr_registry.artifacts import resolution
from mxr_registry.database.session import Database


@pytest.fixture(scope="module")
def filled(server: RegistryUnderTest, parts: Parts) -> Any:
    """Programs for gfx908 and gfx11-generic; the first says on how many CUs it was made."""
    attributes = {"sramecc": "+", "xnack": "-", "num_cu": 100, "tuning": "default"}
    assert server.publish(parts.gfx908, parts.gpu_key(), attributes=attributes)[0] == 201
    assert server.publish(parts.generic, parts.gpu_key("gfx11-generic"))[0] == 201
    return server


def resolve(server: RegistryUnderTest, key: Any, **constraints: Any) -> tuple[int, Any]:
    found: tuple[int, Any] = server.call("POST", "/v1/resolve", {"key": key, "constraints": constraints})
    return found


def test_a_hit_says_how_well_it_fits_and_where_the_files_are(filled: Any, parts: Parts) -> None:
    status, hit = resolve(filled, parts.gpu_key(), sramecc="+", xnack="-", num_cu=100)
    assert status == 200
    assert hit["match"] == {"exact": True, "relaxed": [], "assumed": {}}
    (url,) = hit["urls"].values()
    assert filled.get(url).data == parts.gfx908
    assert hit["artifact"]["manifest"]["files"][0]["sha256"] == hit["artifact"]["sha256"]


def test_what_is_open_is_assumed_and_said(filled: Any, parts: Parts) -> None:
    _, hit = resolve(filled, parts.gpu_key())
    assert hit["match"]["assumed"] == {"sramecc": "+", "xnack": "-", "num_cu": 100}


def test_a_generic_program_serves_its_family_and_says_so(filled: Any, parts: Parts) -> None:
    status, hit = resolve(filled, parts.gpu_key("gfx1100"))
    assert (status, hit["match"]["relaxed"]) == (200, ["arch"])
    status, miss = resolve(filled, parts.gpu_key("gfx1100"), exact=True)
    assert (status, miss["code"]) == (404, "no_such_artifact")


def test_a_miss_names_the_flag_that_alone_is_missing(filled: Any, parts: Parts) -> None:
    status, said = resolve(filled, parts.gpu_key(), sramecc="+", xnack="-", num_cu=120)
    error = said
    assert (status, error["code"], error["retry"]) == (404, "no_such_artifact", False)
    assert error["context"]["nearest"][0]["differences"] == [{"field": "num_cu", "asked": 120, "found": 100}]
    assert error["context"]["accept"] == {"id": error["context"]["nearest"][0]["id"], "allow": ["cu"]}
    assert "mxr " not in error["hint"] and "--" not in error["hint"], "the client knows its commands"
    status, hit = resolve(filled, parts.gpu_key(), sramecc="+", xnack="-", num_cu=120, allow=["cu"])
    assert (status, hit["match"]["relaxed"]) == (200, ["num_cu"])


@on_sqlite
def test_a_miss_tells_what_is_nearest(filled: Any, parts: Parts) -> None:
    status, said = resolve(filled, parts.gpu_key("gfx942", precision="fp16"), num_cu=304, xnack="-")
    assert status == 404
    assert "gfx942" in said["detail"] and "ROCm 7.2" in said["detail"]
    found = [each["differences"] for each in said["context"]["nearest"]]
    assert [each[0] for each in found if len(each) == 2][1:] == [
        {"field": "arch", "asked": "gfx942", "found": "gfx908"}
    ]
    assert "accept" not in said["context"]


@on_sqlite
def test_exact_is_what_refuses_and_that_is_said(filled: Any, parts: Parts) -> None:
    _, said = resolve(filled, parts.gpu_key(), sramecc="+", xnack="-", num_cu=100, build="abc", exact=True)
    assert said["context"]["accept"]["exact"] is False


def test_a_model_that_nobody_knows_is_said(filled: Any, parts: Parts) -> None:
    status, said = resolve(filled, parts.gpu_key(model="sha256:" + "9" * 64))
    assert (status, said["context"]["nearest"]) == (404, [])
    assert "does not know this model" in said["detail"]


def test_misses_are_counted(filled: Any, parts: Parts) -> None:
    key = parts.gpu_key("gfx1201")
    for _ in range(3):
        _, said = resolve(filled, key)
    rows = filled.call("GET", "/v1/misses")[1]["items"]
    assert rows[0]["digest"] == said["context"]["digest"]
    assert rows[0]["count"] == 3 and rows[0]["first_at"] <= rows[0]["last_at"]
    assert rows[0]["request"]["key"]["arch"] == "gfx1201" and rows[0]["nearest"]


@on_sqlite
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"key": {}, "constraints": {}}, "key.model: this field is missing"),
        ({"constraint": {}}, "constraint: unknown field"),
        ({"constraints": {}}, "key: this field is missing"),
    ],
)
def test_requests_that_are_not_right_name_the_field(server: RegistryUnderTest, body: Any, words: str) -> None:
    status, said = server.call("POST", "/v1/resolve", body)
    assert (status, said["code"]) == (422, "usage")
    assert words in said["detail"]


@on_sqlite
@pytest.mark.parametrize(
    "constraints", [{"num_cu": 0}, {"num_cu": 2**70}, {"allow": ["all"]}, {"sramecc": "?"}, {"exact": 1}]
)
def test_constraints_that_are_not_right_are_refused(server: RegistryUnderTest, parts: Parts, constraints: Any) -> None:
    assert resolve(server, parts.gpu_key(), **constraints)[0] == 422


def test_open_features_that_disagree_are_a_question_to_the_person(server: RegistryUnderTest, parts: Parts) -> None:
    one = parts.gpu_key("gfx90a")
    for sign, data in (("+", parts.gfx90a_plus), ("-", parts.gfx90a_minus)):
        assert server.publish(data, one, attributes={"sramecc": "+", "xnack": sign})[0] == 201
    status, said = resolve(server, one)
    assert (status, said["code"]) == (422, "usage")
    assert "xnack+" in said["detail"] and said["context"]["field"] == "xnack"
    assert resolve(server, one, xnack="-")[0] == 200


def test_the_promoted_one_comes_first_and_the_latest_promotion_wins(start: Start, parts: Parts) -> None:
    server = start()
    key = parts.gpu_key("gfx90a")
    ids = [server.publish(data, key, **parts.explicit)[1]["id"] for data in parts.same_key]
    assert len(set(ids)) == 3

    def first() -> str:
        return str(resolve(server, key)[1]["artifact"]["id"])

    assert first() == ids[0]
    for id in (ids[1], ids[2], ids[1]):
        status, said = server.call("POST", f"/v1/artifacts/{id}/promote")
        assert (status, said["promoted_at"] is not None) == (200, True)
        assert first() == id
    status, gone = server.call("DELETE", f"/v1/artifacts/{ids[1]}?force=yes")
    assert (status, gone["id"]) == (200, ids[1])
    assert first() == ids[2]
    assert server.call("DELETE", f"/v1/artifacts/{ids[1]}?force=yes")[0] == 404


def test_lists_are_filtered_and_paged(filled: Any, parts: Parts) -> None:
    def ids(query: str) -> list[str]:
        return [each["id"] for each in filled.call("GET", f"/v1/artifacts?{query}")[1]["items"]]

    every = ids("")
    assert len(every) >= 2 and len(ids("arch=gfx908")) >= 1
    for query in ("arch=gfx908", "input=x", "kind=gpu", "vendor=amd", "migraphx=2.15", "rocm=7.2", "precision=fp32"):
        assert set(ids(query)) <= set(every) and ids(query), query
    assert ids("arch=gfx908:sramecc%2B") == ids("arch=gfx908")
    for query in (
        "arch=gfx1200",
        "input=y",
        "kind=ref",
        f"model=sha256:{'0' * 64}",
        "precision=int8",
        f"digest={'0' * 64}",
    ):
        assert ids(query) == [], query
    first = filled.call("GET", "/v1/artifacts?limit=1")[1]
    second = filled.call("GET", f"/v1/artifacts?limit=1&after={first['next']}")[1]
    assert [first["items"][0]["id"], second["items"][0]["id"]] == every[:2]
    assert "manifest" not in first["items"][0] and "description" not in first["items"][0]


@on_sqlite
@pytest.mark.parametrize(
    "query", ["colour=red", "limit=0", "limit=1001", "limit=x", "limit=-1", "after=x", "after=1e3"]
)
def test_filters_that_there_are_not_are_refused(server: RegistryUnderTest, query: str) -> None:
    status, said = server.call("GET", f"/v1/artifacts?{query}")
    assert (status, said["code"]) == (422, "usage")


def test_an_id_may_be_cut_short(filled: Any, parts: Parts) -> None:
    id = filled.call("GET", "/v1/artifacts?limit=1")[1]["items"][0]["id"]
    assert filled.call("GET", f"/v1/artifacts/{id[:8]}")[1]["id"] == id
    for bad, status in ((id[:7], 422), ("0" * 8, 404), (id.upper(), 422), (id + "0", 422), ("%00", 422)):
        assert filled.call("GET", f"/v1/artifacts/{bad}")[0] == status, bad


def test_a_request_that_is_large_is_answered_alike(filled: Any, parts: Parts) -> None:
    # It is decoded in a thread; small ones are by the event loop.
    key = {"key": parts.gpu_key(), "constraints": {"sramecc": "+"}}
    small, large = json.dumps(key).encode(), json.dumps(key, indent=2_000).encode()
    replies = [filled.call("POST", "/v1/resolve", body) for body in (small, large)]
    assert replies[0][0] == 200 and replies[0] == replies[1]


def test_the_event_loop_computes_no_digest_of_a_large_key() -> None:
    """It would answer nobody else meanwhile."""
    known: Any = None
    for inputs in ((("x" * 2_001, (1,)),), tuple((f"x{n}", (1,)) for n in range(33))):
        request = Request(Key("sha256:" + "0" * 64, "ref", "2.16", inputs))
        assert resolution.hit_at_once(known, known, "default", request) is None
        assert "related" not in vars(request)


COPIES = """
INSERT INTO artifacts ({columns}, id)
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
SELECT {columns}, printf('%064x', n)
FROM artifacts, numbers WHERE id = '{id}'
"""


@on_sqlite
class TestManyArtifactsOfOneKey:
    """A publisher can push any bytes behind a program, and so any number of programs for one key."""

    @pytest.fixture
    def first(self, server: RegistryUnderTest, parts: Parts) -> str:
        """The id of the only artifact of the key."""
        server.clear()
        return str(server.publish(parts.gfx908, parts.gpu_key(), **parts.explicit)[1]["id"])

    def copy(self, server: RegistryUnderTest, id: str, count: int) -> None:
        """Add copies of an artifact."""
        names = server.rows.execute("SELECT name FROM pragma_table_info('artifacts')")
        columns = ", ".join(name for (name,) in names if name not in ("seq", "id"))
        server.rows.execute(COPIES.format(columns=columns, count=count, id=id))

    def test_no_more_are_pushed_than_requests_look_at(
        self, server: RegistryUnderTest, parts: Parts, first: str
    ) -> None:
        self.copy(server, first, MAX_CANDIDATES - 1)
        status, said = server.publish(parts.gfx908 + b"1", parts.gpu_key(), **parts.explicit)
        assert (status, said["code"], said["context"]["candidates"]) == (409, "conflict", MAX_CANDIDATES), said
        assert server.publish(parts.gfx908, parts.gpu_key(), **parts.explicit)[0] == 200, "it is there already"
        assert server.publish(parts.gfx908 + b"1", parts.gpu_key(env={"MIOPEN_FIND_ENFORCE": "3"}), **parts.explicit)[0]
        server.ok("DELETE", f"/v1/artifacts/{1:064x}")
        assert server.publish(parts.gfx908 + b"1", parts.gpu_key(), **parts.explicit)[0] == 201

    def test_what_was_built_is_found_among_any_number_of_pushes(
        self, server: RegistryUnderTest, parts: Parts, first: str
    ) -> None:
        self.copy(server, first, 5 * MAX_CANDIDATES)
        middle = f"{3 * MAX_CANDIDATES:064x}"
        server.rows.execute(f"UPDATE artifacts SET origin = 'built' WHERE id = '{middle}'")
        assert resolve(server, parts.gpu_key())[1]["artifact"]["id"] == middle

    def test_a_choice_reads_nothing_that_a_publisher_can_make_large(
        self, server: RegistryUnderTest, parts: Parts, first: str
    ) -> None:
        """The manifests of 60 artifacts, 1.8 MB each, were read for each resolve, in six threads at once."""
        large = {"provenance_json", "key_json", "manifest_json", "description_json", "claim_json", "names_json"}
        assert not large & {column.key for column in resolution.CHOOSABLE.selected_columns}
        db = Database(f"sqlite:///{server.data / 'registry.db'}")
        digest = server.ok("GET", f"/v1/artifacts/{first}")["digest"]
        values = {"namespace": "default", "digest": digest, "generic": digest}
        (row,) = db.run(resolution.PREPARED, values)
        assert row.manifest_json and row.key_json, "one alone is read at once"
        self.copy(server, first, 2)
        rows = db.run(resolution.PREPARED, values)
        assert [(row.manifest_json, row.key_json, row.provenance_json) for row in rows] == [(None, None, None)] * 3
        db.close()
        assert resolve(server, parts.gpu_key())[1]["artifact"]["id"] == first
