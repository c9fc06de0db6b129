"""Workers and pools: who can compile what, who is alive, and who would be needed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import bindparam, delete, exists, insert, select, update

from mxr import work
from mxr.errors import NotFound, NoWorker
from mxr.fields import canonical, encode
from mxr.qualities import Demands, Request

from . import failures, lanes
from .db import Row, Session, now
from .rules import Rules
from .work_tables import Job, Worker

FORGOTTEN = 7 * 86400.0
"""Seconds after which a lost worker is no longer listed."""

MOST_LISTED = 2_000

BY_ID = select(*Worker.__table__.c).where(Worker.namespace == bindparam("namespace"), Worker.id == bindparam("of"))
SEEN = (
    update(Worker)
    .where(Worker.namespace == bindparam("of_namespace"), Worker.id == bindparam("of"))
    .values(seen_at=bindparam("moment"))
)


def register(session: Session, rules: Rules, namespace: str, stated: work.RegisterWorker) -> str:
    """Write down a worker and what it can do; its JSON. The same name keeps its id. Raises `Usage`."""
    lanes.check_can(stated.can)
    moment = now(session)
    session.execute(delete(Worker).where(Worker.namespace == namespace, Worker.seen_at < moment - FORGOTTEN))
    toolchain = failures.toolchain_text(stated.can.toolchain)
    values: dict[str, Any] = {
        "can_json": canonical(encode(stated.can)),
        "toolchain": failures.toolchain_hash(toolchain),
        "toolchain_json": toolchain,
        "seen_at": moment,
    }
    same = (Worker.namespace == namespace, Worker.name == stated.name)
    id = session.execute(update(Worker).where(*same).values(values).returning(Worker.id)).scalar()
    if id is None:
        id = secrets.token_hex(16)
        values |= {"namespace": namespace, "name": stated.name, "id": id, "created_at": moment}
        session.execute(insert(Worker).values(values))
    row = session.execute(_select(namespace).where(Worker.id == id)).one()
    return canonical(_document(row, moment, rules))


def _select(namespace: str) -> Any:
    holding = select(Job.id).where(Job.state == work.RUNNING, Job.worker == Worker.id).limit(1).scalar_subquery()
    return select(*Worker.__table__.c, holding.label("job")).where(Worker.namespace == namespace)


def _document(row: Row, moment: float, rules: Rules) -> dict[str, Any]:
    state = "lost" if row.seen_at < moment - rules.lost_after else "busy" if row.job else "idle"
    can = json.loads(row.can_json)
    return {"id": row.id, "name": row.name, "state": state, "can": can, "seen_at": row.seen_at, "job": row.job}


def find(session: Session, namespace: str, id: str) -> Row:
    """A worker by its whole id. Raises `NotFound`."""
    row = session.execute(BY_ID, {"namespace": namespace, "of": id}).first()
    if row is None:
        raise NotFound(f"There is no worker {id[:64]!r} here.", hint="Register it again: POST /v1/workers.")
    return row


def stale(row: Row, moment: float, rules: Rules, waiting: bool) -> bool:
    """Whether it is time to write down that this worker is alive: not at each of its words."""
    return bool(row.seen_at < moment - (rules.lost_after / 2 if waiting else min(15.0, rules.lost_after / 4)))


def seen(session: Session, namespace: str, id: str | None, moment: float) -> None:
    """This worker spoke."""
    session.execute(SEEN, {"of_namespace": namespace, "of": id, "moment": moment})


def present(session: Session, some: Iterable[tuple[str, str]]) -> None:
    """These workers (namespace and id) are waiting here."""
    moment = now(session)
    for namespace, id in some:
        seen(session, namespace, id, moment)


def listed(session: Session, rules: Rules, namespace: str) -> str:
    """The JSON of `work.Workers`: the workers by name, and the pools with the jobs that they could do or do."""
    from . import queue

    moment = now(session)
    rows = session.execute(_select(namespace).order_by(Worker.name).limit(MOST_LISTED))
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


def live(session: Session, rules: Rules, namespace: str) -> list[Row]:
    """The workers that spoke lately, with the job that each has (`job`)."""
    return list(session.execute(_select(namespace).where(Worker.seen_at >= now(session) - rules.lost_after)))


def able(session: Session, rules: Rules, namespace: str, lane: str, demands: str) -> list[Mapping[str, Any]]:
    """The toolchains of the live workers and declared pools that can do a job of this lane and demands."""
    return [
        json.loads(failures.toolchain_text(can.toolchain))
        for can, text in _cans(session, rules, namespace)
        if lanes.fitting(text, lane, demands) is not None
    ]


def _cans(session: Session, rules: Rules, namespace: str) -> Iterator[tuple[work.Can, str]]:
    for text in {row.can_json for row in live(session, rules, namespace)}:
        yield lanes.can_of(text), text
    for pool in rules.pools:
        yield pool.can, canonical(encode(pool.can))


def another(session: Session, rules: Rules, worker: Row, job: Row) -> bool:
    """Whether another worker that is alive and idle could do this job, and did not fail it for good before."""
    moment = now(session)
    for other in live(session, rules, worker.namespace):
        if other.id == worker.id or other.job or lanes.fitting(other.can_json, job.lane, job.demands_json) is None:
            continue
        blocked = exists().where(Job.seq == job.seq, failures.stands_against(other.toolchain, moment))
        if not session.execute(select(blocked)).scalar_one():
            return True
    return False


def refusal(request: Request) -> NoWorker:
    """The error that says which worker would be needed."""
    key, demands = request.key, request.demands
    userland = "DTK" if key.vendor == "hygon" else "ROCm"
    if key.kind == "ref":
        needed = f"a worker for the ref target with MIGraphX {demands.migraphx_patch or key.migraphx}"
    else:
        counts = "".join(
            f", {count} {words}" for count, words in ((demands.num_cu, "CUs"), (demands.chiplets, "chiplets")) if count
        )
        signs = "".join(f":{name}{getattr(demands, name)}" for name in ("sramecc", "xnack") if getattr(demands, name))
        needed = (
            f"a worker for gpu {'' if key.vendor == 'amd' else f'{key.vendor} '}{key.arch}{signs}{counts}, with "
            f"{userland} {demands.rocm_patch or key.rocm} and MIGraphX {demands.migraphx_patch or key.migraphx}"
        )
    return NoWorker(
        f"No live worker and no declared pool can compile this: it needs {needed}.",
        hint=_hint(demands),
        detail={"needed": request.to_json()["demands"] | {"lane": lanes.lane_of(key), "kind": key.kind}},
    )


def _hint(demands: Demands) -> str:
    loose = "" if "patch" in demands.allow or not demands.rocm_patch else " `--allow patch` takes another ROCm patch."
    usual = "Start `mxr-worker run` on such a host, or queue it with `--on-miss ask`; `mxr workers` shows who is there."
    return usual + loose
