"""Any history of two workers at two registries on one database: one holds the lease, and only its secret counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.workers import claim_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from registry.registry_client import Parts, RegistryUnderTest, marked

NUMBER = itertools.count()
STEPS = ("claim", "claim again", "both claim", "heartbeat", "fail", "handback", "finish", "finish twice", "expire")
steps = some.lists(
    some.tuples(some.sampled_from(STEPS), some.integers(0, 1), some.integers(0, 1)), min_size=4, max_size=18
)


@pytest.fixture(scope="module")
def both(server: RegistryUnderTest) -> Iterator[tuple[RegistryUnderTest, RegistryUnderTest]]:
    """Two registries on one database."""
    second = type(server)(server.data, rows=server.rows)
    yield server, second
    second.stop()


class History:
    """One job, and what its two workers know. `valid`: the secret that counts now; `done`: that of its result."""

    def __init__(self, both: tuple[Any, Any]) -> None:
        both[0].clear()
        self.both, self.parts = both, Parts(both[0].register_model())
        self.job = both[0].submit(self.parts.ref_key(env=marked(f"history {next(NUMBER)}")))["id"]
        self.workers = [both[0].register_worker(f"w{n}") for n in range(2)]
        self.claims = [claim_of(worker, job=self.job) for worker in self.workers]
        self.leases: list[Any] = [None, None]
        self.valid = self.done = ""

    def claim(self, worker: int, at: int) -> bool:
        """Whether a claim gets the lease, and what must hold then."""
        status, said = self.both[at].call("POST", "/v1/jobs/claim", self.claims[worker])
        assert status == 200, said
        if said["lease"] is None:
            return False
        self.leases[worker] = said["lease"] | {"secret": self.claims[worker]["lease"]}
        return True

    def step(self, what: str, worker: int, at: int) -> None:
        """Do one step, and compare the answer with what the secret is worth."""
        if what in ("claim", "claim again", "both claim"):
            self.both[0].end_backoff(self.job)
            before, known = self.valid, [claim["lease"] for claim in self.claims]
            if what != "claim again":
                # A new claim of the holder is one more: it gets nothing while the lease is held.
                for each in (0, 1) if what == "both claim" else (worker,):
                    if known[each] != before:
                        self.claims[each] = claim_of(self.workers[each], job=self.job)
            if what == "both claim":
                with ThreadPoolExecutor(2) as pool:
                    got = list(pool.map(self.claim, (0, 1), (0, 1)))
            else:
                got = [worker == each and self.claim(worker, at) for each in (0, 1)]
            holders = [claim["lease"] for claim, has in zip(self.claims, got, strict=True) if has]
            assert len(holders) <= 1, "two hold one job"
            assert not before or not holders or holders == [before], "a lease that is held is given to nobody else"
            self.valid = before or (holders[0] if holders else "")
        elif what == "expire":
            self.both[at].age_lease(self.job)
            self.valid = ""
        elif self.leases[worker] is not None:
            self.say(what, self.leases[worker], at)

    def say(self, what: str, lease: Any, at: int) -> None:
        """A message about the job with the secret of a lease, which may be lost."""
        verb, secret = what.split()[0], lease["secret"]
        bodies: dict[str, Any] = {"heartbeat": {}, "handback": {}}
        bodies["fail"] = {"failure": {"kind": "transient", "message": "no"}}
        if verb == "finish":
            bodies["finish"] = {"artifact": self.both[at].publication(lease)}
        path, body = f"/v1/jobs/{self.job}/{verb}", {"lease": secret, **bodies[verb]}
        many = (0, 1) if what == "finish twice" else (at,)
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda each: self.both[each].call("POST", path, body), many))
        counts = secret == self.valid or (verb == "finish" and secret == self.done != "")
        assert {status for status, _ in found} == {200 if counts else 409}, (what, found)
        if counts and verb != "heartbeat":
            self.valid = ""
        if counts and verb == "finish":
            self.done = secret


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps)
def test_one_worker_holds_a_job_whatever_happens(both: tuple[Any, Any], history: list[tuple[str, int, int]]) -> None:
    found = History(both)
    for step in history:
        found.step(*step)
    job, artifacts = both[0].job(found.job), both[1].ok("GET", "/v1/artifacts")["items"]
    assert len(artifacts) == (1 if found.done else 0) == (job["state"] == "done")
    text = str([job, artifacts, both[0].ok("GET", "/v1/workers")]) + "".join(each.log.read_text() for each in both)
    assert not [claim for claim in found.claims if claim["lease"] in text or claim["credential"] in text]
