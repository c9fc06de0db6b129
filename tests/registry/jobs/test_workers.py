"""What is known of workers, logs and figures."""

from __future__ import annotations

from typing import Any

import pytest
from harness.waiting import until
from harness.workers import claim_of, registration_of, secret_of, sign_off
from registry.registry_client import Parts, Start, marked, on_sqlite


def own(parts: Parts, name: str, **other: Any) -> dict[str, Any]:
    return parts.ref_key(env=marked(name), **other)


def test_a_log_keeps_its_head_and_its_tail(registry: Any, parts: Parts) -> None:
    job = registry.submit(own(parts, "long_log"))
    lease = registry.claim(registry.register_worker())
    lines = [f"line {n} {'x' * 90}\n" for n in range(30_000)]
    for at in range(0, len(lines), 2_000):
        registry.heartbeat(lease, log="".join(lines[at : at + 2_000]))
    reply = registry.http.request("GET", f"{registry.url}/v1/jobs/{job['id']}/log")
    text = reply.data.decode()
    assert "== attempt 1 on one ==\nline 0 " in text and text.endswith(lines[-1])
    assert "bytes of the log were not kept" in text
    assert 1_250_000 < len(text) < 1_400_000
    size = int(reply.headers["mxr-log-next"])
    assert size == sum(map(len, lines)) + len("== attempt 1 on one ==\n")
    registry.heartbeat(lease, log="and höher\n")
    more = registry.http.request("GET", f"{registry.url}/v1/jobs/{job['id']}/log?offset={size}")
    assert more.data.decode() == "and höher\n"
    with_nothing = registry.http.request("GET", f"{registry.url}/v1/jobs/{job['id']}/log?offset=99999999")
    assert with_nothing.data == b""


def test_workers_are_idle_busy_or_lost(start: Start, parts: Parts) -> None:
    # One that waits is written down as alive every second.
    registry = start(config="[work]\nlost_after = 4\n")
    registry.register_model()
    id = registry.register_worker("steady")
    assert registry.register_worker("steady") == id
    assert states(registry) == {"steady": "idle"}
    registry.submit(own(parts, "states"))
    lease = registry.claim(id)
    shown = registry.ok("GET", "/v1/workers")["items"][0]
    assert shown["state"] == "busy" and shown["job"] == lease["job"]
    registry.finish(lease)
    waiting = registry.waiting_claim(registry.register_worker("other", parts.gpu_capabilities()))
    registry.age_workers()
    until(lambda: states(registry) == {"other": "idle", "steady": "lost"})
    waiting.close()
    assert registry.submit_error(own(parts, "nobody"), require_worker=True)["code"] == "no_worker"


def states(registry: Any) -> dict[str, str]:
    return {each["name"]: each["state"] for each in registry.ok("GET", "/v1/workers")["items"]}


def test_a_name_is_taken_over_when_its_worker_is_lost(registry: Any, parts: Parts) -> None:
    first = registry.register_worker("gpu-1")
    registry.submit(own(parts, "taken"))
    lease = registry.claim(first)
    other = registration_of("gpu-1", parts.ref_capabilities) | {"credential": secret_of("another host")}
    refused = registry.error("POST", "/v1/workers", other)
    assert refused["code"] == "conflict" and "MXR_WORKER_NAME" in refused["hint"]
    assert registry.register_worker("gpu-1") == first, "itself, it may come back at any time"
    registry.age_workers()
    found = registry.ok("POST", "/v1/workers", other)
    assert found["id"] != first and found["job"] is None
    assert registry.heartbeat(lease)["cancelled"] is False, "the lease is that of the first one still"
    assert registry.error("POST", "/v1/jobs/claim", claim_of(first))["code"] == "not_found"
    assert registry.error("POST", "/v1/workers", registration_of("gpu-1", parts.ref_capabilities))["code"] == "conflict"
    assert registry.finish(lease)["state"] == "done"


def test_a_worker_with_another_name_leaves_no_second_row(registry: Any, parts: Parts) -> None:
    registry.register_worker("before")
    renamed = registration_of("after", parts.ref_capabilities) | {"credential": secret_of("before")}
    registry.ok("POST", "/v1/workers", renamed)
    assert states(registry) == {"after": "idle"}


@on_sqlite
@pytest.mark.parametrize("secret", ["", "x" * 42, "x" * 44, "x" * 42 + "/", "x" * 42 + "\n", 1, None, ["x"]])
def test_what_is_no_secret_is_refused_and_not_told(registry: Any, parts: Parts, secret: Any) -> None:
    said = registry.error(
        "POST", "/v1/workers", registration_of("odd", parts.ref_capabilities) | {"credential": secret}
    )
    assert said["code"] == "usage" and "credential" in said["detail"]
    assert not isinstance(secret, str) or len(secret) < 9 or secret not in str(said)


def test_a_worker_that_signed_off_is_not_there(registry: Any, parts: Parts) -> None:
    id, other = registry.register_worker("leaving"), registry.register_worker("staying", parts.gpu_capabilities())
    assert sign_off(registry.ok, id)["state"] == "left"
    assert [each["id"] for each in registry.ok("GET", "/v1/workers")["items"]] == [other]
    assert registry.submit_error(own(parts, "left"), require_worker=True)["code"] == "no_worker"
    assert registry.error("POST", "/v1/jobs/claim", claim_of(id))["code"] == "not_found"
    assert sign_off(registry.error, id)["code"] == "not_found"
    assert sign_off(registry.error, "nobody")["code"] == "not_found"
    stays = {"arch": "gfx908", "migraphx": "2.15.0", "rocm": "7.2.1"}
    assert [registry.metric("mxr_fleet_workers", **stays, state=state) for state in ("idle", "lost")] == [1, None]
    assert registry.register_worker("leaving") == id, "it comes back as itself"
    assert registry.submit(own(parts, "left"), require_worker=True)["state"] == "queued"


def test_who_signs_off_while_it_waits_is_given_nothing(registry: Any, parts: Parts) -> None:
    id = registry.register_worker("leaving")
    waiting = registry.waiting_claim(id)
    sign_off(registry.ok, id)
    job = registry.submit(own(parts, "nobody_here"))
    assert waiting.reply()[0] == 404
    assert registry.job(job["id"])["attempts"] == 0


def test_a_lease_outlives_the_goodbye_of_its_worker(registry: Any, parts: Parts) -> None:
    registry.submit(own(parts, "goodbye"))
    id = registry.register_worker("leaving")
    lease = registry.claim(id)
    sign_off(registry.ok, id)
    assert registry.heartbeat(lease)["cancelled"] is False
    assert registry.finish(lease)["state"] == "done"
    assert registry.ok("GET", "/v1/workers")["items"] == []


@on_sqlite
@pytest.mark.parametrize(
    "can",
    [
        {"targets": [], "toolchain": {}},
        {"targets": [{"arch": "sm90"}], "toolchain": {"rocm": "7.2.1", "migraphx": "2.15.0"}},
        {"targets": [{"arch": "gfx908"}], "toolchain": {"rocm": "seven", "migraphx": "2.15.0"}},
        {"targets": [{"arch": "gfx908", "colour": "red"}], "toolchain": {}},
        {"targets": [{"arch": "gfx908", "kind": "tpu"}], "toolchain": {}},
        {"targets": [{"arch": "gfx908"}], "toolchain": {}, "trusts": ["two words"]},
        {"targets": [{"arch": "gfx908"}], "toolchain": {}, "trusts": ["a"] * 65},
    ],
)
def test_a_worker_that_says_nonsense_is_refused(registry: Any, can: Any) -> None:
    assert registry.error("POST", "/v1/workers", registration_of("odd", can))["code"] == "usage"
