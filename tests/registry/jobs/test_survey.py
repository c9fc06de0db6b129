"""What pipelines ask about many programs at once: surveys make nothing, watches miss nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from harness.scale import crowd
from registry.registry_client import HEARD, Parts, on_sqlite

from mxr_registry.config.job_rules import JobRules
from mxr_registry.jobs.notifications import JobNotifier


def survey(registry: Any, *keys: dict[str, Any], constraints: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """How these keys stand."""
    asked = {"requests": [{"key": key, "constraints": constraints or {}} for key in keys]}
    return registry.ok("POST", "/v1/survey", asked)["standings"]


def test_a_survey_tells_each_request_apart_and_makes_nothing(registry: Any, parts: Parts) -> None:
    """One is there, one is queued, one could be compiled, one failed before, and one nobody can do."""
    there, queued, free, failed = (parts.ref_key(env={"MIGRAPHX_MLIR_TUNE_LIMIT": str(at)}) for at in range(4))
    worker = registry.register_worker()
    registry.submit(there)
    made = registry.finish(registry.claim(worker))["artifact"]
    registry.submit(failed)
    registry.fail(registry.claim(worker), "permanent", "unsupported")
    job = registry.submit(queued)["id"]
    found = survey(registry, there, queued, free, failed, parts.gpu_key())
    assert found[0]["artifact"] == made and found[0]["match"] == {"exact": True, "relaxed": [], "assumed": {}}
    assert (found[1]["job"], found[1]["state"], found[1]["artifact"]) == (job, "queued", None)
    assert found[2]["able"] and found[2]["job"] is None and found[2]["failure"] is None
    assert found[2]["estimate"] == 12.5 and "one compile" in found[2]["estimate_from"]
    assert found[3]["failure"]["name"] == "unsupported"
    assert not found[4]["able"] and found[4]["estimate"] is None
    assert len(registry.ok("GET", "/v1/jobs")["items"]) == 3
    assert registry.ok("GET", "/v1/misses")["items"] == []


@on_sqlite
def test_a_survey_says_what_was_assumed(registry: Any, parts: Parts) -> None:
    """An open feature is taken as all that would serve agree on it, as a resolve does."""
    # Of a model whose file is not here: the program was not made from the one that is.
    key = parts.gpu_key(model="sha256:" + "5a" * 32)
    manifest = registry.manifest(parts.gfx908)
    artifact = {"key": key, "manifest": manifest, "attributes": {"sramecc": "+", "xnack": "-"}}
    registry.ok("POST", "/v1/artifacts", artifact)
    found = survey(registry, key, parts.ref_key())
    assert found[0]["artifact"] and found[0]["match"]["assumed"] == {"sramecc": "+", "xnack": "-"}
    assert found[1]["problem"] is None


@on_sqlite
def test_a_survey_has_a_size(registry: Any, parts: Parts) -> None:
    asked = {"requests": [{"key": parts.ref_key()}] * 1001}
    assert "at most 1000" in registry.error("POST", "/v1/survey", asked)["detail"]


def test_a_watch_tells_what_changed_and_what_is_gone(registry: Any, parts: Parts) -> None:
    """It answers at once where something is news, by the versions that the asker knows."""
    jobs = [registry.submit(parts.ref_key(env={"MIGRAPHX_MLIR_TUNE_LIMIT": str(at)})) for at in range(3)]
    known = {job["id"]: job["version"] for job in jobs}
    assert registry.ok("POST", "/v1/jobs/watch", {"jobs": known}) == {"jobs": [], "gone": []}
    registry.ok("POST", f"/v1/jobs/{jobs[1]['id']}/cancel")
    told = registry.ok("POST", "/v1/jobs/watch", {"jobs": known | {"f" * 32: 0}, "wait": 30})
    assert [(each["id"], each["state"]) for each in told["jobs"]] == [(jobs[1]["id"], "cancelled")]
    assert told["gone"] == ["f" * 32]


def test_a_watch_waits_for_the_first_change_of_many(registry: Any, parts: Parts) -> None:
    """One connection for all of them; what happens after it began is told."""
    jobs = [registry.submit(parts.ref_key(env={"MIGRAPHX_MLIR_TUNE_LIMIT": str(at)})) for at in range(crowd(50))]
    known = {job["id"]: job["version"] for job in jobs}
    waiting = registry.pending("POST", "/v1/jobs/watch", {"jobs": known, "wait": 60})
    registry.handled(waiting)
    lease = registry.claim(registry.register_worker())
    _, told = waiting.reply()
    assert [(each["id"], each["state"]) for each in told["jobs"]] == [(lease["job"], "running")]


def test_a_watch_of_nothing_that_can_change_ends_at_once(registry: Any, parts: Parts) -> None:
    nothing = registry.pending("POST", "/v1/jobs/watch", {"jobs": {}, "wait": 60})
    assert nothing.reply(HEARD) == (200, {"jobs": [], "gone": []})
    job = registry.submit(parts.ref_key(model=registry.register_model(), precision="fp32"))
    job = registry.ok("POST", f"/v1/jobs/{job['id']}/cancel")
    closed = registry.pending("POST", "/v1/jobs/watch", {"jobs": {job["id"]: job["version"]}, "wait": 60})
    assert closed.reply(HEARD) == (200, {"jobs": [], "gone": []})


def test_a_subscription_to_nothing_starts_no_watcher() -> None:
    class NoDatabase:
        def reading(self) -> None:
            raise AssertionError("a watcher started")

    async def subscribe() -> None:
        notifier = JobNotifier(NoDatabase(), JobRules())
        async with notifier.subscribe([], asyncio.Event().wait) as subscription:
            assert not await subscription.wait(0.05)
            assert notifier.sequence() is None

    asyncio.run(subscribe())


def test_a_watch_without_news_ends_with_its_time(registry: Any, parts: Parts) -> None:
    job = registry.submit(parts.ref_key())
    assert registry.ok("POST", "/v1/jobs/watch", {"jobs": {job["id"]: job["version"]}, "wait": 0.3})["jobs"] == []


@on_sqlite
def test_a_precision_that_an_arch_cannot_run_is_refused_before_any_job(registry: Any, parts: Parts) -> None:
    """fp8 on gfx908, where MIGraphX would compute in fp32 without a word."""
    error = registry.submit_error(parts.gpu_key(precision="fp8"))
    assert error["code"] == "usage" and "fp8 does not run on gfx908" in error["detail"]
    assert registry.ok("GET", "/v1/jobs")["items"] == []
