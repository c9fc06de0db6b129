"""Cross-compiles: by a worker that can, for an asker who allows it, where nobody has the GPU."""

from __future__ import annotations

from typing import Any

import pytest
from harness.workers import registration_of, sign_off
from registry.registry_client import Parts, Start, marked, on_sqlite

CONSTRAINTS = {"num_cu": 120, "chiplets": 1, "allow": ["cross"]}


def navi(parts: Parts) -> dict[str, Any]:
    """What a host with another GPU can, whose MIGraphX compiles across."""
    return {**parts.gpu_capabilities("gfx1100", 48), "cross": True}


def mi100(parts: Parts) -> dict[str, Any]:
    can: dict[str, Any] = parts.gpu_capabilities()
    can["targets"][0]["chiplets"] = 1
    return can


def test_a_job_nobody_else_can_do(registry: Any, parts: Parts) -> None:
    worker = registry.register_worker("navi", navi(parts))
    assert registry.submit_error(parts.gpu_key(), require_worker=True)["code"] == "no_worker"
    key = parts.gpu_key(arch="gfx90a")
    described = registry.submit_error(key, require_worker=True, constraints={"allow": ["cross"]})
    assert described["code"] == "no_worker" and "num_cu and chiplets" in described["hint"]
    assert "each half of an MI250X: 110 and 1." in described["hint"]
    job = registry.submit(parts.gpu_key(), require_worker=True, constraints=CONSTRAINTS)
    assert job["waiting_for"] is None
    lease = registry.claim(worker)
    assert (lease["job"], lease["target"], lease["cross"]) == (job["id"], 0, True)
    done = registry.finish(lease, data=parts.gfx908, attributes={"tuning": "cross", "sramecc": "+", "xnack": "-"})
    attributes = registry.ok("GET", f"/v1/artifacts/{done['artifact']}")["attributes"]
    assert (attributes["tuning"], attributes["num_cu"], attributes["chiplets"]) == ("cross", 120, 1)
    wanted = {"key": parts.gpu_key(), "constraints": {"num_cu": 120}}
    assert registry.error("POST", "/v1/resolve", wanted)["code"] == "no_such_artifact"


@on_sqlite
def test_what_was_not_made_on_the_gpu_does_not_pass_as_such(registry: Any, parts: Parts) -> None:
    registry.submit(parts.gpu_key(), constraints=CONSTRAINTS)
    lease = registry.claim(registry.register_worker("navi", navi(parts)))
    artifact = registry.publication(lease, parts.gfx908)
    refused = registry.error(
        "POST", f"/v1/jobs/{lease['job']}/finish", {"lease": lease["secret"], "artifact": artifact}
    )
    assert refused["context"]["differences"] == [{"field": "tuning", "asked": "cross", "found": "default"}]


@on_sqlite
def test_who_has_the_gpu_goes_first(registry: Any, parts: Parts) -> None:
    across, own = registry.register_worker("navi", navi(parts)), registry.register_worker("mi100", mi100(parts))
    job = registry.submit(parts.gpu_key(), constraints=CONSTRAINTS)
    assert registry.claim(across) is None
    sign_off(registry.ok, own)
    assert registry.claim(across)["job"] == job["id"]


def test_a_host_without_a_gpu_compiles_for_the_archs_that_it_names(registry: Any, parts: Parts) -> None:
    can = {**navi(parts), "targets": [], "cross_for": ["gfx908", "gfx90a"]}
    waiting = registry.waiting_claim(registry.register_worker("build/cross", can))
    other = {"key": parts.gpu_key(arch="gfx1100"), "constraints": CONSTRAINTS | {"num_cu": 48}}
    assert registry.error("POST", "/v1/jobs", other | {"require_worker": True})["code"] == "no_worker"
    assert registry.submit_error(parts.gpu_key(), require_worker=True)["code"] == "no_worker", "not allowed"
    job = registry.submit(parts.gpu_key(), require_worker=True, constraints=CONSTRAINTS)
    lease = registry.heard(waiting)
    assert (lease["job"], lease["cross"]) == (job["id"], True)
    registry.finish(lease, data=parts.gfx908, attributes={"tuning": "cross", "sramecc": "+", "xnack": "-"})
    shown = registry.ok("GET", "/v1/workers")["items"][0]
    assert shown["can"]["targets"] == [] and shown["can"]["cross_for"] == ["gfx908", "gfx90a"]
    partial = {
        "model": parts.model,
        "kind": "gpu",
        "vendor": "amd",
        "arch": "gfx90a",
        "inputs": {"x": [None, 3, 32, 32]},
    }
    told = registry.error("POST", "/v1/candidates", partial | {"constraints": CONSTRAINTS | {"num_cu": 104}})
    assert told["context"]["toolchains"] == [{"migraphx": "2.15", "rocm": "7.2"}], told


def cross_compiled(registry: Any, parts: Parts) -> Any:
    """A program that was cross-compiled, by a worker that is gone."""
    worker = registry.register_worker("build/cross", {**navi(parts), "targets": []})
    registry.submit(parts.gpu_key(), constraints=CONSTRAINTS)
    lease = registry.claim(worker)
    done = registry.finish(lease, data=parts.gfx908, attributes={"tuning": "cross", "sramecc": "+", "xnack": "-"})
    sign_off(registry.ok, worker)
    return done["artifact"]


def test_the_first_worker_with_the_gpu_replaces_what_was_cross_compiled(registry: Any, parts: Parts) -> None:
    wanted = {"key": parts.gpu_key(), "constraints": CONSTRAINTS}
    first = cross_compiled(registry, parts)
    assert registry.ok("POST", "/v1/resolve", wanted)["artifact"]["id"] == first
    registry.register_worker("cpx", {**mi100(parts), "targets": [{"arch": "gfx908", "num_cu": 60, "chiplets": 1}]})
    assert registry.ok("GET", "/v1/jobs?state=queued")["items"] == [], "another GPU"
    own = registry.register_worker("mi100", mi100(parts))
    (upgrade,) = registry.ok("GET", "/v1/jobs?state=queued")["items"]
    assert upgrade["priority"] == -100 and upgrade["request"]["constraints"]["num_cu"] == 120
    assert registry.register_worker("mi100", mi100(parts)) == own
    assert len(registry.ok("GET", "/v1/jobs?state=queued")["items"]) == 1, "asked for once"
    other = registry.submit(parts.gpu_key(env=marked("first")))
    assert registry.claim(own)["job"] == other["id"], "all others go first"
    lease = registry.claim(own)
    assert (lease["job"], lease["cross"]) == (upgrade["id"], False)
    registry.finish(lease, data=parts.gfx908, attributes={"sramecc": "+", "xnack": "-"})
    answer = registry.ok("POST", "/v1/resolve", wanted)["artifact"]
    assert answer["attributes"]["tuning"] == "default", "the same bytes, that have run now"
    registry.register_worker("mi100", mi100(parts))
    assert registry.ok("GET", "/v1/jobs?state=queued")["items"] == [], "nothing is left"


def test_so_does_a_worker_that_was_lost_and_is_back(registry: Any, parts: Parts) -> None:
    own = registry.register_worker("mi100", mi100(parts))
    registry.age_workers()
    cross_compiled(registry, parts)
    assert registry.ok("GET", "/v1/jobs?state=queued")["items"] == []
    lease = registry.claim(own)
    assert lease and not lease["cross"]


@on_sqlite
def test_nothing_is_replaced_where_the_operator_says_so(start: Start, parts: Parts) -> None:
    registry = start(config="[work]\nupgrade_cross = false\n")
    registry.register_model()
    cross_compiled(registry, parts)
    registry.register_worker("mi100", mi100(parts))
    assert registry.ok("GET", "/v1/jobs?state=queued")["items"] == []


def test_counts_that_are_left_open_are_those_of_hosts_that_were_seen_or_of_the_only_product(
    registry: Any, parts: Parts
) -> None:
    def asked(arch: str, **more: Any) -> Any:
        constraints, key = (
            {"allow": ["cross"], **more},
            parts.gpu_key(arch=arch, env=marked(f"{arch}{len(more)}{len(seen)}")),
        )
        found = registry.submit(key, constraints=constraints)["request"]["constraints"]
        return found["num_cu"], found["chiplets"]

    seen: list[str] = []
    worker = registry.register_worker("build/cross", {**navi(parts), "targets": []})

    def compiled() -> Any:
        found = registry.claim(worker)["constraints"]
        return found["num_cu"], found["chiplets"]

    assert asked("gfx950") == (None, None), "a worker with the GPU may come first"
    assert compiled() == (256, 8), "there is only one such product"
    assert asked("gfx942", num_cu=228) == (228, None)
    assert compiled() == (228, 6)
    assert asked("gfx942") == (None, None)
    assert registry.claim(worker) is None, "more than one product"
    target = {"arch": "gfx942", "num_cu": 304, "chiplets": 8, "sramecc": "+", "xnack": "-"}
    seen.append(registry.register_worker("mi300x", {**parts.gpu_capabilities(), "targets": [target]}))
    sign_off(registry.ok, seen[0])
    open_ = [{"key": parts.gpu_key(arch=arch), "constraints": {"allow": ["cross"]}} for arch in ("gfx942", "gfx90a")]
    found = registry.ok("POST", "/v1/survey", {"requests": open_})["standings"]
    assert [each["able"] for each in found] == [True, False], "a survey finds what a submission would"
    assert asked("gfx942") == (304, 8), "as the host that was seen has it"
    assert compiled() == (304, 8)


@on_sqlite
@pytest.mark.parametrize(
    "more", [{"targets": []}, {"cross_for": ["gfx908"]}, {"cross": True, "cross_for": ["sm90"]}], ids=str
)
def test_what_is_no_way_to_cross_compile_is_refused(registry: Any, parts: Parts, more: dict[str, Any]) -> None:
    body = registration_of("odd", {**parts.gpu_capabilities(), **more})
    assert registry.error("POST", "/v1/workers", body)["code"] == "usage"


@on_sqlite
def test_a_declared_pool_goes_first(start: Start, parts: Parts) -> None:
    pool = '[[pools]]\nname="mi100"\ntargets=[{arch="gfx908"}]\ntoolchain={rocm="7.2.1", migraphx="2.15.0"}\n'
    registry = start(config=pool)
    registry.register_model()
    registry.submit(parts.gpu_key(), constraints=CONSTRAINTS)
    assert registry.claim(registry.register_worker("navi", navi(parts))) is None


def test_other_lanes_are_left_alone(registry: Any, parts: Parts) -> None:
    registry.submit(parts.gpu_key(rocm="7.1"), constraints=CONSTRAINTS)
    registry.submit(parts.gpu_key(arch="gfx90a"), constraints=CONSTRAINTS | {"num_cu": 104})
    registry.submit(parts.ref_key())
    mine = registry.submit(parts.gpu_key(arch="gfx1100"))
    worker = registry.register_worker("navi", navi(parts))
    leases = [registry.claim(worker) for _ in range(3)]
    assert leases[0]["key"]["arch"] == "gfx90a" and leases[0]["cross"], "in the order of asking"
    assert leases[1]["job"] == mine["id"] and not leases[1]["cross"]
    assert leases[2] is None


def test_one_who_waits_hears_of_it(registry: Any, parts: Parts) -> None:
    """By the news of the job: its own second look would come later than the wait ends."""
    waiting = registry.waiting_claim(registry.register_worker("navi", navi(parts)))
    job = registry.submit(parts.gpu_key(), constraints=CONSTRAINTS)
    assert registry.heard(waiting)["job"] == job["id"]
