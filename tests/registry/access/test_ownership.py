"""What a token may do with the objects of other principals: the cells of the table in docs/security.md."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pytest
from harness.workers import claim_of, lease_of, registered, registration_of, secret_of
from registry.artifacts.test_imported_statements import envelope
from registry.artifacts.test_tags import lock_of
from registry.registry_client import GFX908, ONNX, REF, REF_CAPABILITIES, Parts, RegistryUnderTest, marked, on_sqlite

from mxr.artifact.limits import MAX_LOCKS_EACH

FACTS = {"attributes": {"num_cu": 120, "sramecc": "+", "xnack": "-"}}


@dataclass(frozen=True)
class As:
    """The requests of one principal with these scopes."""

    server: RegistryUnderTest
    name: str
    header: dict[str, str]

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of a reply."""
        found: tuple[int, Any] = self.server.call(method, path, body, self.header)
        return found

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a reply that must be a success."""
        status, said = self(method, path, body)
        assert status < 300, said
        return said

    def refused(self, method: str, path: str, body: Any = None) -> str:
        """What a reply says that must be 403."""
        status, said = self(method, path, body)
        assert (status, said["code"]) == (403, "not_allowed"), said
        return str(said["detail"])


class Principals:
    """Makes principals: `principals("alice", "fetch")`."""

    def __init__(self, server: RegistryUnderTest) -> None:
        self.server = server

    def __call__(self, name: str, *scopes: str) -> As:
        """A principal with a new token."""
        made = self.server.ok("POST", "/v1/tokens", {"name": name, "scopes": scopes})
        return As(self.server, name, {"authorization": f"Bearer {made['secret']}"})


@pytest.fixture
def principals(server: RegistryUnderTest) -> Principals:
    """Principals of the registry of the module, which has no jobs and artifacts yet."""
    server.clear()
    return Principals(server)


def entry(data: bytes) -> dict[str, Any]:
    """The entry of a blob in a manifest."""
    return {"sha256": sha256(data).hexdigest(), "size": len(data)}


def upload(who: As, data: bytes) -> None:
    """Upload a blob."""
    assert who("PUT", f"/v1/blobs/{sha256(data).hexdigest()}", data)[0] == 201


def publish(who: As, key: dict[str, Any], data: bytes = GFX908, **more: Any) -> Any:
    """Upload and publish a program."""
    upload(who, data)
    file = {"name": "model.mxr", **entry(data), "blobs": [entry(data)]}
    return who.ok("POST", "/v1/artifacts", {"key": key, "manifest": {"files": [file]}, **FACTS, **more})


@on_sqlite
class TestPublish:
    def test_it_amends_and_removes_its_own(self, principals: Principals, parts: Parts) -> None:
        alice, bob = principals("alice", "publish"), principals("bob", "publish")
        own = publish(alice, parts.gpu_key())
        assert own["created_by"] == "alice"
        upload(bob, GFX908)
        assert "can amend it" in bob.refused(
            "POST",
            "/v1/artifacts",
            {
                "key": parts.gpu_key(),
                "manifest": own["manifest"],
                "intent": {"amend": True},
                "attributes": {**FACTS["attributes"], "num_cu": 104},
            },
        )
        text = bob.refused("DELETE", f"/v1/artifacts/{own['id']}")
        assert "was pushed by alice, and bob may remove only what it pushed" in text
        alice.ok("DELETE", f"/v1/artifacts/{own['id']}")

    def test_it_adds_statements_to_its_own_and_moves_no_tag(self, principals: Principals, parts: Parts) -> None:
        alice, bob = principals("alice", "publish"), principals("bob", "publish")
        lead = principals("lead", "promote")
        own = publish(alice, parts.gpu_key())
        path, said = f"/v1/statements/{own['id']}", {"statement": envelope(own["sha256"])}
        assert "may add statements only to what it pushed itself" in bob.refused("POST", path, said)
        principals("reader", "fetch").refused("POST", path, said)
        alice.ok("POST", path, said)
        lead.ok("POST", path, {"statement": envelope(own["sha256"], predicate={"by": "lead"})})
        lock = {"lock": lock_of(own["id"])}
        alice.refused("PUT", "/v1/tags/prod", lock)
        lead.ok("PUT", "/v1/tags/prod", lock)
        for method, path in (("DELETE", "/v1/tags/prod"), ("DELETE", "/v1/locks/tag:prod")):
            assert alice(method, path)[0] in (403, 422)
        lead.ok("DELETE", "/v1/tags/prod")

    def test_it_yanks_its_own_and_quarantines_nothing(self, principals: Principals, parts: Parts) -> None:
        alice, bob = principals("alice", "publish"), principals("bob", "publish")
        officer, lead = principals("officer", "recall"), principals("lead", "promote")
        path = f"/v1/artifacts/{publish(alice, parts.gpu_key())['id']}/recall"
        yank, quarantine = ({"word": word, "reason": "x"} for word in ("yanked", "quarantined"))
        for who, body in ((bob, yank), (alice, quarantine)):
            assert "may only yank what it pushed itself" in who.refused("PUT", path, body)
        assert "may only yank what it pushed itself" in alice.refused("PUT", f"/v1/artifacts/{'a' * 64}/recall", yank)
        alice.ok("PUT", path, yank)
        officer.ok("PUT", path, quarantine)
        for who in (alice, officer):
            assert who.refused("DELETE", path)
        lead.ok("DELETE", path)

    def test_what_was_removed_comes_back_only_by_who_removed_it(
        self, server: RegistryUnderTest, principals: Principals, parts: Parts
    ) -> None:
        alice, bob, admin = principals("alice", "publish"), principals("bob", "publish"), principals("root", "admin")
        own = publish(alice, parts.gpu_key())
        path, again = f"/v1/artifacts/{own['id']}", {"key": parts.gpu_key(), "manifest": own["manifest"], **FACTS}
        admin.ok("DELETE", path)
        status, said = server.call("GET", path)
        assert (status, said["context"]["removed"], said["context"]["id"]) == (404, True, own["id"])
        status, said = alice("POST", "/v1/artifacts", again)
        assert (status, said["code"], said["context"]["removed"]) == (409, "conflict", True)
        assert "was removed by root" in said["detail"] and "intent.restore" in said["hint"]
        meant = again | {"intent": {"restore": True}}
        assert "was removed by root" in alice.refused("POST", "/v1/artifacts", meant)
        back = admin.ok("POST", "/v1/artifacts", meant)
        assert (back["id"], back["restored_by"], back["created_by"]) == (own["id"], "root", "root")
        assert back["restored_at"] >= own["published_at"] and own["restored_at"] is None
        # Its own removal is its own to undo; the history stays until then.
        upload(bob, GFX908)
        admin.ok("DELETE", path)
        assert bob.refused("POST", "/v1/artifacts", meant)
        admin.ok("POST", "/v1/artifacts", meant)
        assert alice.ok("POST", "/v1/artifacts", again)["restored_by"] == "root"

    def test_it_restores_what_it_removed_itself(self, principals: Principals, parts: Parts) -> None:
        alice = principals("alice", "publish")
        own = publish(alice, parts.gpu_key())
        alice.ok("DELETE", f"/v1/artifacts/{own['id']}")
        assert publish(alice, parts.gpu_key(), intent={"restore": True})["restored_by"] == "alice"

    def test_it_removes_nothing_that_was_built(
        self, server: RegistryUnderTest, principals: Principals, parts: Parts
    ) -> None:
        """Not even under the name of the worker that built it."""
        both = principals("builder", "work", "publish")
        server.submit(parts.ref_key(model=server.register_model()))
        lease = lease_of(both.ok, registered(both.ok, "w", REF_CAPABILITIES))
        artifact = server.publication(lease)
        upload(both, REF)
        job = both.ok("POST", f"/v1/jobs/{lease['job']}/finish", {"lease": lease["secret"], "artifact": artifact})
        assert "was built by builder" in both.refused("DELETE", f"/v1/artifacts/{job['artifact']}")

    def test_what_it_tries_beyond_that(self, principals: Principals, parts: Parts) -> None:
        alice = principals("alice", "publish")
        own = publish(alice, parts.gpu_key())
        for method, path, body in (
            ("POST", f"/v1/artifacts/{own['id']}/promote", None),
            ("POST", f"/v1/jobs/{'0' * 32}/finish", {}),
            ("POST", "/v1/jobs/claim", claim_of("nobody")),
            ("DELETE", "/v1/tokens/000000000000", None),
            ("POST", "/v1/tokens", {"name": "mallory", "scopes": ["admin"]}),
            ("GET", "/v1/tokens", None),
            ("GET", f"/v1/blobs/{own['sha256']}", None),
            ("POST", "/v1/resolve", {"key": parts.gpu_key()}),
            ("GET", "/metrics", None),
        ):
            assert " has the scope publish; this needs " in alice.refused(method, path, body)

    def test_locks_belong_to_who_made_them(
        self, server: RegistryUnderTest, principals: Principals, parts: Parts
    ) -> None:
        alice, bob, release = (
            principals("alice", "publish"),
            principals("bob", "publish"),
            principals("release", "promote"),
        )
        made = alice.ok("PUT", "/v1/locks/prod", {"artifacts": []})
        assert made["created_by"] == "alice"
        alice.ok("PUT", "/v1/locks/prod", {"artifacts": []})
        for method, body in (("PUT", {"artifacts": []}), ("DELETE", None)):
            assert "The lock prod belongs to alice" in bob.refused(method, "/v1/locks/prod", body)
        assert release.ok("PUT", "/v1/locks/prod", {"artifacts": []})["created_by"] == "alice"
        alice.ok("DELETE", "/v1/locks/prod")
        release.ok("PUT", "/v1/locks/release", {"artifacts": []})
        assert "belongs to release" in alice.refused("DELETE", "/v1/locks/release")
        release.ok("DELETE", "/v1/locks/release")

    def test_a_lock_does_not_stop_an_administrator(
        self, server: RegistryUnderTest, principals: Principals, parts: Parts
    ) -> None:
        mallory, admin = principals("mallory", "publish"), principals("root", "admin")
        bad = server.publish(GFX908, parts.gpu_key(), **FACTS)[1]["id"]
        other = server.publish(REF, parts.ref_key())[1]["id"]
        mallory.ok("PUT", "/v1/locks/mine", {"artifacts": [bad, other]})
        assert "pinned by a lock: mine" in admin.refused("DELETE", f"/v1/artifacts/{bad}")
        assert "Only an administrator" in mallory.refused("DELETE", f"/v1/artifacts/{bad}?force=yes")
        assert admin.ok("DELETE", f"/v1/artifacts/{bad}?force=yes")["id"] == bad
        assert admin.ok("GET", "/v1/locks/mine")["artifacts"] == [other]
        assert mallory("PUT", "/v1/locks/mine", {"artifacts": [bad, other]})[1]["context"]["ids"] == [bad]

    def test_a_principal_has_a_bound_of_locks(self, server: RegistryUnderTest, principals: Principals) -> None:
        mallory, bob = principals("mallory", "publish"), principals("bob", "publish")
        mallory.ok("PUT", "/v1/locks/first", {"artifacts": []})
        server.rows.execute(
            "INSERT INTO locks (namespace, name, created_at, created_by, updated_at) WITH RECURSIVE numbers(n) AS "
            f"(SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < {MAX_LOCKS_EACH}) "
            "SELECT namespace, 'lock-' || n, created_at, created_by, updated_at FROM locks, numbers"
        )
        status, said = mallory("PUT", "/v1/locks/one-more", {"artifacts": []})
        assert (status, said["context"]) == (409, {"limit": MAX_LOCKS_EACH})
        mallory.ok("PUT", "/v1/locks/first", {"artifacts": []})
        bob.ok("PUT", "/v1/locks/other", {"artifacts": []})


class TestAsk:
    @pytest.fixture
    def key(self, server: RegistryUnderTest, parts: Parts, request: pytest.FixtureRequest) -> Any:
        """The key of a job of this test."""
        return parts.ref_key(model=server.register_model(), env=marked(request.node.name))

    def test_it_sees_only_what_it_asked_for(
        self, server: RegistryUnderTest, principals: Principals, key: Any, parts: Parts
    ) -> None:
        alice, bob = principals("alice", "ask"), principals("bob", "ask")
        job = alice.ok("POST", "/v1/jobs", {"key": key})
        other = server.submit(parts.ref_key(model=key["model"], env=marked("another")))
        assert [each["id"] for each in alice.ok("GET", "/v1/jobs")["items"]] == [job["id"]]
        assert bob.ok("GET", "/v1/jobs")["items"] == []
        for path in ("", "/log", "/events"):
            assert alice("GET", f"/v1/jobs/{other['id']}{path}")[0] == 404
            assert bob("GET", f"/v1/jobs/{job['id']}{path}")[0] == 404
        assert bob("POST", f"/v1/jobs/{job['id']}/cancel")[0] == 404
        watched = bob.ok("POST", "/v1/jobs/watch", {"jobs": {job["id"]: 0}})
        assert watched == {"jobs": [], "gone": [job["id"]]}
        assert server.job(job["id"])["state"] == "queued", "an administrator sees all"

    def test_who_asks_for_the_same_sees_the_same_job(self, principals: Principals, key: Any) -> None:
        alice, bob = principals("alice", "ask"), principals("bob", "ask")
        job = alice.ok("POST", "/v1/jobs", {"key": key})
        assert bob.ok("POST", "/v1/jobs", {"key": key})["id"] == job["id"]
        assert bob.ok("GET", f"/v1/jobs/{job['id']}")["id"] == job["id"]
        assert bob("GET", f"/v1/jobs/{job['id']}/log")[0] == 200

    def test_it_withdraws_and_the_last_one_ends_the_job(
        self, server: RegistryUnderTest, principals: Principals, key: Any
    ) -> None:
        alice, bob = principals("alice", "ask"), principals("bob", "ask")
        job = alice.ok("POST", "/v1/jobs", {"key": key})["id"]
        bob.ok("POST", "/v1/jobs", {"key": key})
        for _ in range(2):
            assert alice.ok("POST", f"/v1/jobs/{job}/cancel")["state"] == "queued", "bob still waits"
        assert alice.ok("GET", f"/v1/jobs/{job}")["state"] == "queued", "it may still look"
        alice.ok("POST", "/v1/jobs", {"key": key})
        assert bob.ok("POST", f"/v1/jobs/{job}/cancel")["state"] == "queued", "alice asked again"
        assert alice.ok("POST", f"/v1/jobs/{job}/cancel")["state"] == "cancelled"

    def test_an_administrator_cancels_for_all(
        self, server: RegistryUnderTest, principals: Principals, key: Any
    ) -> None:
        alice = principals("alice", "ask")
        job = alice.ok("POST", "/v1/jobs", {"key": key})["id"]
        assert server.ok("POST", f"/v1/jobs/{job}/cancel")["state"] == "cancelled"

    def test_a_job_that_is_done_or_failed_belongs_to_who_asks_later_too(
        self, server: RegistryUnderTest, principals: Principals, key: Any
    ) -> None:
        alice, bob = principals("alice", "ask"), principals("bob", "ask")
        job = alice.ok("POST", "/v1/jobs", {"key": key})["id"]
        server.finish(server.claim(server.register_worker()))
        done = bob.ok("POST", "/v1/jobs", {"key": key})
        assert (done["id"], done["state"]) == (job, "done")
        assert bob.ok("GET", f"/v1/jobs/{job}")["state"] == "done"
        bad = {**key, "env": marked("fails")}
        alice.ok("POST", "/v1/jobs", {"key": bad})
        server.fail(server.claim(server.register_worker()), "permanent")
        failed = bob.ok("POST", "/v1/jobs", {"key": bad})
        assert failed["state"] == "failed" and bob("GET", f"/v1/jobs/{failed['id']}")[0] == 200

    def test_it_hears_of_no_job_of_others_in_a_survey(self, principals: Principals, key: Any) -> None:
        alice, bob = principals("alice", "ask"), principals("bob", "ask")
        job = alice.ok("POST", "/v1/jobs", {"key": key})["id"]
        requests = {"requests": [{"key": key, "constraints": {}}]}
        assert alice.ok("POST", "/v1/survey", requests)["standings"][0]["job"] == job
        found = bob.ok("POST", "/v1/survey", requests)["standings"][0]
        assert (found.get("job"), found.get("state")) == (None, None)

    def test_it_reads_no_bytes(self, server: RegistryUnderTest, principals: Principals, key: Any) -> None:
        alice = principals("alice", "ask")
        name = sha256(ONNX).hexdigest()
        assert alice("PUT", f"/v1/blobs/{name}", ONNX)[0] == 201
        assert " this needs fetch or work." in alice.refused("GET", f"/v1/blobs/{name}")


@on_sqlite
class TestBytes:
    def test_programs_and_models_are_different_purposes(
        self, server: RegistryUnderTest, principals: Principals, parts: Parts
    ) -> None:
        fetch, work = principals("host", "fetch"), principals("gpu", "work")
        server.register_model()
        server.publish(GFX908, parts.gpu_key(), **FACTS)
        free = server.upload(b"nobody refers to it")["sha256"]
        program, model = sha256(GFX908).hexdigest(), sha256(ONNX).hexdigest()
        for who, sees in ((fetch, {program}), (work, {model})):
            for name in (program, model, free):
                reply = server.request("GET", f"/v1/blobs/{name}?direct=no", headers=who.header)
                assert (reply.status == 200) == (name in sees), (who.name, name)
        assert server.request("GET", f"/v1/blobs/{free}").status == 200

    def test_a_worker_reads_the_calibration_data_of_jobs(
        self, server: RegistryUnderTest, principals: Principals, parts: Parts
    ) -> None:
        work = principals("gpu", "work")
        data = server.upload(b"calibration")["sha256"]
        assert work("GET", f"/v1/blobs/{data}")[0] == 404
        key = parts.ref_key(model=server.register_model(), precision="int8", calibration=data)
        server.submit(key)
        assert server.request("GET", f"/v1/blobs/{data}", headers=work.header).data == b"calibration"


@on_sqlite
class TestUploads:
    """The sha256s of blobs are no secrets: keys, manifests of models and locks have them."""

    @pytest.fixture
    def others(
        self, server: RegistryUnderTest, principals: Principals, request: pytest.FixtureRequest
    ) -> tuple[As, bytes]:
        """A token with all that is not an administrator's, and the bytes of a blob that alice uploaded."""
        data = f"weights of alice in {request.node.name}".encode()
        upload(principals("alice", "ask"), data)
        return principals(f"eve@{request.node.name.partition('[')[0]}", "fetch", "ask", "publish", "work"), data

    def test_a_blob_of_others_counts_as_missing(self, server: RegistryUnderTest, others: tuple[As, bytes]) -> None:
        eve, data = others
        blob = entry(data)
        assert eve.ok("POST", "/v1/blobs/missing", {"blobs": [blob]})["missing"] == [blob["sha256"]]
        assert server.ok("POST", "/v1/blobs/missing", {"blobs": [blob]})["missing"] == [], "an administrator reads all"
        upload(eve, data)
        assert eve.ok("POST", "/v1/blobs/missing", {"blobs": [blob]})["missing"] == []

    def test_it_is_in_no_model_of_somebody_else(self, server: RegistryUnderTest, others: tuple[As, bytes]) -> None:
        """The program of such a model would hold its bytes."""
        eve, data = others
        blob = entry(data)
        wanted = server.registration()
        upload(eve, ONNX)
        wanted["manifest"]["files"].append({"name": "weights.bin", **blob, "blobs": [blob]})
        wanted.pop("model")
        status, said = eve("POST", "/v1/models", wanted)
        assert (status, said["context"]["missing"]) == (404, [blob["sha256"]]), said
        upload(eve, data)
        assert "missing" not in eve("POST", "/v1/models", wanted)[1]["detail"], "now it is about the external data"

    def test_nor_in_a_program(self, others: tuple[As, bytes], parts: Parts) -> None:
        """Bytes behind a program are no error of it."""
        eve, data = others
        blob = entry(data)
        upload(eve, GFX908)
        whole = sha256(GFX908 + data).hexdigest()
        blobs = [entry(GFX908), blob]
        file = {"name": "model.mxr", "size": len(GFX908) + blob["size"], "sha256": whole, "blobs": blobs}
        status, said = eve("POST", "/v1/artifacts", {"key": parts.gpu_key(), "manifest": {"files": [file]}, **FACTS})
        assert (status, said["context"]["missing"]) == (404, [blob["sha256"]]), said

    def test_nor_in_the_result_of_a_job(
        self, server: RegistryUnderTest, principals: Principals, others: tuple[As, bytes], parts: Parts
    ) -> None:
        eve, _ = others
        server.submit(parts.ref_key(model=server.register_model(), env=marked("theirs")))
        lease = lease_of(eve.ok, registered(eve.ok, "w", REF_CAPABILITIES))
        artifact = server.publication(lease)
        path, body = f"/v1/jobs/{lease['job']}/finish", {"lease": lease["secret"], "artifact": artifact}
        assert eve("POST", path, body)[1]["context"]["missing"] == [sha256(REF).hexdigest()]
        upload(eve, REF)
        assert eve.ok("POST", path, body)["state"] == "done"

    def test_nor_is_it_calibration_data(
        self, server: RegistryUnderTest, others: tuple[As, bytes], parts: Parts
    ) -> None:
        """The scope `work` reads the calibration data of jobs."""
        eve, data = others
        blob = entry(data)
        key = parts.ref_key(model=server.register_model(), precision="int8", calibration=blob["sha256"])
        status, said = eve("POST", "/v1/jobs", {"key": key})
        assert (status, said["context"]) == (404, {"missing": [blob["sha256"]], "calibration": True})
        assert eve("GET", f"/v1/blobs/{blob['sha256']}")[0] == 404
        upload(eve, data)
        assert eve.ok("POST", "/v1/jobs", {"key": key})["state"] == "queued"


SCOPES = ("fetch", "ask", "publish", "promote", "work", "metrics")


@on_sqlite
@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(SCOPES, 2)])
def test_two_scopes_allow_what_each_of_them_allows(
    server: RegistryUnderTest, principals: Principals, parts: Parts, one: str, other: str
) -> None:
    """`ask,work` was an administrator of all jobs."""
    model = server.register_model()
    job = server.submit(parts.ref_key(model=model, env=marked(f"{one}-{other}")))
    program = server.publish(GFX908, parts.gpu_key(), **FACTS)[1]["id"]
    requests = {"requests": [{"key": job["request"]["key"], "constraints": {}}]}
    reads: tuple[tuple[str, str, Any], ...] = (
        *(("GET", f"/v1/jobs/{job['id']}{path}", None) for path in ("", "/log")),
        *(
            ("GET", f"/v1/{kind}", None)
            for kind in ("jobs", "jobs?state=open", "artifacts", "models", "workers", "misses")
        ),
        *(("GET", f"/v1/blobs/{sha256(each).hexdigest()}?direct=no", None) for each in (GFX908, ONNX)),
        ("POST", "/v1/jobs/watch", {"jobs": {job["id"]: 0}}),
        ("POST", "/v1/survey", requests),
        ("POST", f"/v1/jobs/{job['id']}/cancel", {}),
        ("DELETE", f"/v1/artifacts/{program}", None),
    )
    both, first, second = principals("both", one, other), principals("first", one), principals("second", other)

    def outcome(who: As, read: tuple[str, str, Any]) -> tuple[int, bool]:
        """The status, and whether the reply names what is somebody else's job."""
        method, path, body = read
        reply = server.request(method, path, body, headers=who.header)
        if reply.status >= 300:
            return int(reply.status), False
        # A watch names what its caller does not see as gone.
        shown = json.dumps(json.loads(reply.data)["jobs"]) if path == "/v1/jobs/watch" else reply.data.decode("latin-1")
        return int(reply.status), job["id"] in shown

    for read in reads:
        alone = [outcome(first, read), outcome(second, read)]
        status, named = outcome(both, read)
        assert (status < 300) <= any(each[0] < 300 for each in alone), (read, status)
        assert named <= any(each[1] for each in alone), read


@on_sqlite
def test_no_worker_can_touch_the_lease_of_another_one(
    server: RegistryUnderTest, principals: Principals, parts: Parts
) -> None:
    """Whatever it reads: the id of a worker and of its job, and what the registry answered."""
    one, two = principals("one", "work"), principals("two", "work")
    server.submit(parts.ref_key(model=server.register_model(), env=marked("lease")))
    worker = registered(one.ok, "w1", REF_CAPABILITIES)
    lease = lease_of(one.ok, worker)
    job = f"/v1/jobs/{lease['job']}"
    artifact = server.publication(lease)
    failure = {"kind": "permanent", "message": "no"}
    guesses = ("A" * 43, secret_of("w1"), secret_of(worker), sha256(lease["secret"].encode()).hexdigest()[:43])
    for verb, body in (("handback", {}), ("heartbeat", {}), ("fail", {"failure": failure})):
        for guess in guesses:
            assert two("POST", f"{job}/{verb}", {"lease": guess, **body})[0] == 409, verb
        for wrong in (1, "", None, lease["secret"][:-1], f"{lease['secret']} ", ["x"]):
            assert two("POST", f"{job}/{verb}", {"lease": wrong, **body})[0] == 422, wrong
    assert two("POST", f"{job}/finish", {"lease": guesses[0], "artifact": artifact})[0] == 409
    status, said = two("POST", "/v1/workers", registration_of("w1", REF_CAPABILITIES) | {"credential": "B" * 43})
    assert (status, said["code"]) == (409, "conflict") and "it is live" in said["detail"]
    assert two("POST", "/v1/jobs/claim", {**claim_of("x"), "lease": lease["secret"]})[0] == 404
    assert two("POST", "/v1/workers/sign-off", {"credential": "B" * 43})[0] == 404
    known = json.dumps([two.ok("GET", "/v1/workers"), two.ok("GET", job), server.ok("GET", "/v1/events"), lease["job"]])
    said = known + server.log.read_text()
    assert lease["secret"] not in said and secret_of("w1") not in said
    assert one.ok("POST", f"{job}/handback", {"lease": lease["secret"]})["state"] == "queued"


def test_a_worker_with_open_walls_takes_only_jobs_of_those_it_trusts(
    server: RegistryUnderTest, principals: Principals, parts: Parts
) -> None:
    """Also its own, and whatever it names; a job that one of them joins becomes theirs, too."""
    alice, bob, host = principals("alice", "ask"), principals("bob", "ask"), principals("host", "ask", "work")
    model = server.register_model()
    open_walls = REF_CAPABILITIES | {"walls": False, "trusts": ["alice"]}
    worker = registered(host.ok, "w", open_walls)
    shown = host.ok("GET", "/v1/workers")["items"][0]["can"]
    assert (shown["walls"], shown["trusts"]) == (False, ["alice", "host"])

    def ask(who: As, name: str, **more: Any) -> tuple[int, Any]:
        return who("POST", "/v1/jobs", {"key": parts.ref_key(model=model, env=marked(name)), **more})

    status, said = ask(bob, "bob", require_worker=True)
    assert (status, said["code"]) == (409, "no_worker") and "or one that trusts bob" in said["detail"], said
    queued = ask(bob, "bob")[1]
    assert "or one that trusts bob" in bob.ok("GET", f"/v1/jobs/{queued['id']}")["waiting_for"]
    survey = {"requests": [{"key": parts.ref_key(model=model, env=marked("x")), "constraints": {}}]}
    assert [who.ok("POST", "/v1/survey", survey)["standings"][0]["able"] for who in (alice, bob)] == [True, False]
    assert lease_of(host.ok, worker) is None
    mine = [ask(who, who.name, require_worker=True)[1]["id"] for who in (alice, host)]
    assert [lease_of(host.ok, worker)["job"] for _ in mine] == mine
    assert lease_of(host.ok, worker) is None
    with_bob = ask(alice, "bob", require_worker=True)[1]
    assert with_bob["id"] == queued["id"] and with_bob["waiting_for"] is None
    assert lease_of(host.ok, worker)["job"] == queued["id"]
    named = ask(bob, "named")[1]["id"]
    assert lease_of(host.ok, worker) is None
    assert lease_of(host.ok, worker, job=named)["job"] == named


def test_a_job_joined_by_somebody_trusted_wakes_the_worker(
    server: RegistryUnderTest, principals: Principals, parts: Parts
) -> None:
    alice, bob = principals("alice", "ask"), principals("bob", "ask")
    asked = {"key": parts.ref_key(model=server.register_model(), env=marked("joined"))}
    job = bob.ok("POST", "/v1/jobs", asked)["id"]
    worker = server.register_worker("w", REF_CAPABILITIES | {"walls": False, "trusts": ["alice"]})
    waiting = server.waiting_claim(worker)
    assert alice.ok("POST", "/v1/jobs", asked)["id"] == job
    assert server.heard(waiting)["job"] == job


@on_sqlite
def test_a_reader_changes_nothing_but_counts(server: RegistryUnderTest, principals: Principals, parts: Parts) -> None:
    host, prometheus = principals("host", "fetch"), principals("prometheus", "metrics")
    _, artifact = server.publish(REF, parts.ref_key())
    assert host.ok("POST", "/v1/uses", {"uses": [{"id": artifact["id"], "count": 5}]}) == {"noted": 1}
    assert host.ok("GET", f"/v1/artifacts/{artifact['id']}")["id"] == artifact["id"]
    for path in (f"/v1/artifacts/{artifact['id']}", "/v1/locks/prod"):
        host.refused("DELETE", path)
        prometheus.refused("DELETE", path)
    assert server.request("GET", "/metrics", headers=prometheus.header).status == 200
    prometheus.ok("GET", "/v1/queue")
    prometheus.refused("GET", "/v1/artifacts")
