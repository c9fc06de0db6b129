"""Workers and pools: who can compile what, who is alive, and who would be needed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, select, update

from mxr.artifact.key import Key
from mxr.artifact.qualities import Demands, Request
from mxr.consumers.ort.recording_form import runtime_in
from mxr.errors import NotFound, NoWorker
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import canonical, encode
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow, WorkerRow
from mxr_registry.database.session import Row, Session, now, upsert

from . import failures

FORGOTTEN = 7 * 86400.0
"""Seconds after which a lost worker is no longer listed."""

MOST_LISTED = 2_000

BY_ID = select(*WorkerRow.__table__.c).where(
    WorkerRow.namespace == bindparam("namespace"), WorkerRow.id == bindparam("of")
)
HERE = WorkerRow.left_at.is_(None)
ALIVE = (
    select(WorkerRow.can_json)
    .where(WorkerRow.namespace == bindparam("namespace"), HERE, WorkerRow.seen_at >= bindparam("since"))
    .distinct()
)
SEEN = (
    update(WorkerRow)
    .where(WorkerRow.namespace == bindparam("of_namespace"), WorkerRow.id == bindparam("of"))
    .values(seen_at=bindparam("moment"))
)


def register(session: Session, rules: JobRules, namespace: str, stated: job_protocol.RegisterWorker) -> str:
    """Write down a worker and what it can do; its JSON. The same name keeps its id. Raises `Usage`."""
    lanes.check_can(stated.can)
    moment = now(session)
    session.execute(delete(WorkerRow).where(WorkerRow.namespace == namespace, WorkerRow.seen_at < moment - FORGOTTEN))
    toolchain = failures.toolchain_text(stated.can.toolchain)
    values: dict[str, Any] = {
        "can_json": canonical(encode(stated.can)),
        "toolchain": failures.toolchain_hash(toolchain),
        "toolchain_json": toolchain,
        "seen_at": moment,
        "left_at": None,
    }
    new = values | {"id": secrets.token_hex(16), "created_at": moment}
    upsert(session, WorkerRow, {"namespace": namespace, "name": stated.name}, new, values)
    row = session.execute(_select(namespace).where(WorkerRow.name == stated.name)).one()
    return canonical(_document(row, moment, rules))


def _select(namespace: str) -> Any:
    holding = (
        select(JobRow.id)
        .where(JobRow.state == job_protocol.RUNNING, JobRow.worker == WorkerRow.id)
        .limit(1)
        .scalar_subquery()
    )
    return select(*WorkerRow.__table__.c, holding.label("job")).where(WorkerRow.namespace == namespace)


def _document(row: Row, moment: float, rules: JobRules) -> dict[str, Any]:
    lost = row.seen_at < moment - rules.lost_after
    state = "left" if row.left_at is not None else "lost" if lost else "busy" if row.job else "idle"
    can = json.loads(row.can_json)
    return {"id": row.id, "name": row.name, "state": state, "can": can, "seen_at": row.seen_at, "job": row.job}


def leave(session: Session, rules: JobRules, namespace: str, id: str) -> str:
    """Write down that a worker signed off, until it registers again; its JSON. Raises `NotFound`.

    Its row stays: a job that failed on it last is still rather given to another.
    """
    moment = now(session)
    find(session, namespace, id)
    same = (WorkerRow.namespace == namespace, WorkerRow.id == id)
    session.execute(update(WorkerRow).where(*same).values(left_at=moment, seen_at=moment))
    return canonical(_document(session.execute(_select(namespace).where(*same)).one(), moment, rules))


def find(session: Session, namespace: str, id: str) -> Row:
    """A worker that is registered, by its whole id. Raises `NotFound`, also for one that signed off."""
    row = session.execute(BY_ID, {"namespace": namespace, "of": id}).first()
    if row is None or row.left_at is not None:
        raise NotFound(f"There is no worker {id[:64]!r} here.", hint="Register it again: POST /v1/workers.")
    return row


def stale(row: Row, moment: float, rules: JobRules, waiting: bool) -> bool:
    """Whether it is time to write down that this worker is alive: not at each of its words."""
    return bool(row.seen_at < moment - (rules.lost_after / 2 if waiting else min(15.0, rules.lost_after / 4)))


def seen(session: Session, namespace: str, id: str | None, moment: float) -> None:
    """This worker spoke."""
    session.execute(SEEN, {"of_namespace": namespace, "of": id, "moment": moment})


def present(session: Session, some: Iterable[tuple[str, str]]) -> None:
    """These workers (namespace and id) are waiting here."""
    moment = now(session)
    # In one order, lest two registries wait for each other.
    for namespace, id in sorted(some):
        seen(session, namespace, id, moment)


def silence(session: Session) -> float:
    """Seconds since any worker was heard of; 0 where there is none."""
    latest = session.execute(select(func.max(WorkerRow.seen_at))).scalar_one()
    return 0.0 if latest is None else max(0.0, now(session) - float(latest))


def excuse(session: Session, rules: JobRules, away: float) -> None:
    """Those who were alive `away` seconds ago, when nobody could hear them any more, are as they were then."""
    alive = WorkerRow.seen_at >= now(session) - away - rules.lost_after
    session.execute(update(WorkerRow).where(HERE, alive).values(seen_at=WorkerRow.seen_at + away))


def listed(session: Session, rules: JobRules, namespace: str) -> str:
    """The JSON of `work.Workers`: the workers by name, and the pools with the jobs that they could do or do."""
    from . import queue

    moment = now(session)
    rows = session.execute(_select(namespace).where(HERE).order_by(WorkerRow.name).limit(MOST_LISTED))
    counts = queue.by_pool(session, rules, namespace)
    pools = [
        {
            "name": pool.name,
            "can": encode(pool.can),
            **{name: counts[pool.name][name] for name in ("queued", "running")},
        }
        for pool in rules.pools
    ]
    return canonical({"workers": [_document(row, moment, rules) for row in rows], "pools": pools})


def live(session: Session, rules: JobRules, namespace: str) -> list[Row]:
    """The workers that spoke lately, with the job that each has (`job`)."""
    return list(session.execute(_select(namespace).where(HERE, WorkerRow.seen_at >= now(session) - rules.lost_after)))


def able(session: Session, rules: JobRules, namespace: str, lane: str, demands: str) -> list[Mapping[str, Any]]:
    """The toolchains of the live workers and declared pools that can do a job of this lane and demands."""
    return [
        json.loads(failures.toolchain_text(can.toolchain))
        for can, text in _cans(session, rules, namespace)
        if lanes.fitting(text, lane, demands) is not None
    ]


def _cans(session: Session, rules: JobRules, namespace: str) -> Iterator[tuple[job_protocol.WorkerCapabilities, str]]:
    wanted = {"namespace": namespace, "since": now(session) - rules.lost_after}
    for text in session.execute(ALIVE, wanted).scalars().all():
        yield lanes.can_of(text), text
    for pool in rules.pools:
        yield pool.can, canonical(encode(pool.can))


def stated(session: Session, rules: JobRules, namespace: str) -> tuple[str, ...]:
    """What those who are live or declared can do, as JSON."""
    return tuple(text for _, text in _cans(session, rules, namespace))


def missing(session: Session, rules: JobRules, job: Row) -> str | None:
    """The worker that a queued job needs, in words, where nothing live or declared can do it now."""
    for _, text in _cans(session, rules, job.namespace):
        if lanes.fitting(text, job.lane, job.demands_json) is not None:
            return None
    return _needed(lanes.key_in(job.lane), lanes.demands_of(job.demands_json))


def another(session: Session, rules: JobRules, worker: Row, job: Row) -> bool:
    """Whether another worker that is alive and idle could do this job, and did not fail it for good before."""
    moment = now(session)
    for other in live(session, rules, worker.namespace):
        if other.id == worker.id or other.job or lanes.fitting(other.can_json, job.lane, job.demands_json) is None:
            continue
        blocked = exists().where(JobRow.seq == job.seq, failures.stands_against(other.toolchain, moment))
        if not session.execute(select(blocked)).scalar_one():
            return True
    return False


def refusal(request: Request) -> NoWorker:
    """The error that says which worker would be needed."""
    key, demands = request.key, request.demands
    return NoWorker(
        f"No live worker and no declared pool can compile this: it needs {_needed(key, demands)}.",
        hint=_hint(key, demands),
        detail={"needed": request.to_json()["demands"] | {"lane": lanes.lane_of(key), "kind": key.kind}},
    )


def _needed(key: Key, demands: Demands) -> str:
    migraphx = demands.migraphx_patch or key.migraphx
    if key.kind == "ref":
        return f"a worker for the ref target with MIGraphX {migraphx}"
    userland = "DTK" if key.vendor == "hygon" else "ROCm"
    counted = ((demands.num_cu, "CUs"), (demands.chiplets, "chiplets"))
    counts = "".join(f", {count} {words}" for count, words in counted if count)
    signs = "".join(f":{name}{getattr(demands, name)}" for name in ("sramecc", "xnack") if getattr(demands, name))
    return (
        f"a worker for gpu {'' if key.vendor == 'amd' else f'{key.vendor} '}{key.arch}{signs}{counts}"
        f"{f' (a {demands.real_arch} that passes for it)' if demands.real_arch else ''}, with "
        f"{userland} {demands.rocm_patch or key.rocm} and MIGraphX {migraphx}{_with_runtime(key)}"
    )


def _with_runtime(key: Key) -> str:
    if key.form == "whole":
        return ""
    generation, version = runtime_in(key.form).split(":")
    return f", and with onnxruntime-migraphx {version} (generation {generation}) in its interpreter"


def _hint(key: Key, demands: Demands) -> str:
    loose = "" if "patch" in demands.allow or not demands.rocm_patch else " `--allow patch` takes another ROCm patch."
    if "cross" in demands.allow and None in (demands.num_cu, demands.chiplets):
        return "A cross-compile takes a GPU that is described whole: give --num-cu and --chiplets as well."
    run = "mxr-worker run" if key.form == "whole" else "mxr-worker run --python PATH-OF-THAT-INTERPRETER"
    usual = f"Start `{run}` on such a host, or queue it with `--on-miss ask`; `mxr workers` shows who is there."
    return usual + loose
