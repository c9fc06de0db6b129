"""Resolve a request to an artifact: a choice among few rows, and a reply made of the stored JSON of one.

A whole fleet calls this at the same time: a hit runs one or two indexed queries and does not re-encode stored JSON.
What a publisher can make large, such as a manifest, is read of the chosen artifact only. The digests of a request are
cached, since many hosts send the same request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn
from urllib.parse import quote

from sqlalchemy import Select, and_, bindparam, exists, literal_column, or_, select
from sqlalchemy.orm import aliased

from mxr.artifact import matching
from mxr.artifact.attributes import Request
from mxr.artifact.limits import MAX_CANDIDATES
from mxr.artifact.matching import BUILT, Candidate, Match, rule_for_compiles
from mxr.errors import Json
from mxr.protocol.artifacts import API
from mxr.util.codec import encode
from mxr_registry.database.session import Database, PreparedQuery, Row, Session, default_serve
from mxr_registry.database.tables import ArtifactRow
from mxr_registry.json_text import stored

from . import catalog, miss_report, misses, namespaces, recalls
from .usage import UsageCounter

CHOOSABLE = (
    select(*catalog.CANDIDATE_COLUMNS, ArtifactRow.digest)
    .where(
        ArtifactRow.namespace == bindparam("namespace"),
        ArtifactRow.lost_at.is_(None),
        ArtifactRow.recall_json.is_(None),
    )
    .order_by(
        ArtifactRow.promoted.desc(), (ArtifactRow.origin == literal_column(f"'{BUILT}'")).desc(), ArtifactRow.seq.desc()
    )
)
"""The artifacts of a namespace whose bytes are there and that nobody recalled, with what a choice needs.

Parameter: `namespace`.
Their order decides only which are left out where a key has more than `MAX_CANDIDATES`."""

REPLY_COLUMNS = (*catalog.COLUMNS, ArtifactRow.names_json, ArtifactRow.manifest_json)
"""What a reply needs of the chosen artifact."""


def _matching_digest() -> Select[Any]:
    whole, other = aliased(ArtifactRow, name="whole"), aliased(ArtifactRow, name="other")

    def matches(row: Any) -> Any:
        return or_(row.digest == bindparam("digest"), row.digest == bindparam("generic"))

    alone = ~exists().where(other.namespace == bindparam("namespace"), matches(other), other.seq != ArtifactRow.seq)
    known = {column.key for column in CHOOSABLE.selected_columns}
    more = [getattr(whole, each.key).label(each.key) for each in REPLY_COLUMNS if each.key not in known]
    found = CHOOSABLE.where(matches(ArtifactRow)).add_columns(*more)
    found = found.outerjoin(whole, and_(whole.seq == ArtifactRow.seq, alone))
    return found.limit(literal_column(str(2 * MAX_CANDIDATES))).offset(literal_column("0"))


MATCHING_DIGEST = _matching_digest()
"""The artifacts that could satisfy a request. Parameters: `namespace`, `digest`, `generic` (or `digest` again).

With `REPLY_COLUMNS` where there is only one, as nearly always; otherwise the others are null."""

CHOSEN = select(*REPLY_COLUMNS).where(ArtifactRow.seq == bindparam("of"))
"""One artifact, with what a reply needs. Parameter: `of`, its `seq`."""

PREPARED = PreparedQuery(MATCHING_DIGEST)
PREPARED_CHOSEN = PreparedQuery(CHOSEN)


RunQuery = Callable[[PreparedQuery, Mapping[str, object]], "list[Row] | None"]
"""Runs a query. None where it could take long."""


MAX_TEXTS, MAX_LETTERS = 32, 2_000
"""Names and values in a key, and their characters together, up to which the event loop computes its digests."""


def is_short(request: Request) -> bool:
    """Whether a request has no more keys than `MATCHING_DIGEST` has parameters: its own, and one of its family."""
    return len(request.related) <= 2


def _is_quick(request: Request) -> bool:
    """Whether the digests of a request are known, or take no time that the event loop would notice."""
    if "related" in vars(request):
        return True
    key = request.key
    texts = (*(name for name, _ in key.inputs), *chain.from_iterable((*key.env, *key.options)))
    return len(texts) <= MAX_TEXTS and sum(map(len, texts)) <= MAX_LETTERS


@dataclass(frozen=True, slots=True)
class ResolveResult:
    """The artifact that satisfies a request: its id, and the JSON value of a `ResolveReply`."""

    id: str
    reply: Json


def hit(db: Database, usage: UsageCounter, namespace: str, request: Request) -> Json | None:
    """Return the JSON value of a `ResolveReply`, and count a use of the artifact; None if there is none.

    Raises `UsageError` if the request leaves a feature open and the matching artifacts differ in it.
    """
    found = find_hit(db, namespace, request)
    return None if found is None else _count(usage, namespace, found)


def hit_at_once(db: Database, usage: UsageCounter, namespace: str, request: Request) -> Json | None:
    """Return what `hit` does, without a thread; None if there is none, or if it could take long.

    For the event loop: see `Database.run_at_once`. Raises `UsageError`.
    """
    if not (_is_quick(request) and is_short(request)):
        return None
    found = _find_hit(db.run_at_once, db.serve, namespace, request)
    return _count(usage, namespace, found) if found else None


def _count(usage: UsageCounter, namespace: str, found: ResolveResult) -> Json:
    usage.count(namespace, found.id, answers=1)
    return found.reply


def refuse(db: Database, namespace: str, request: Request) -> NoReturn:
    """Count a miss. Raises `NoSuchArtifactError`, which explains it."""
    with db.reading() as session:
        rule = namespaces.rule_of(session, namespace)
        error = miss_report.miss_error(session, namespace, request, rule)
        error.context[recalls.RECALLS] = recalls.sequence_of(session, namespace)
    misses.record_miss(db, namespace, request, error.context)
    raise error


def find_hit(db: Database, namespace: str, request: Request) -> ResolveResult | None:
    """Return the hit, or None. Raises `UsageError` as `hit` does."""
    if not is_short(request):
        with db.reading() as session:
            chosen = choose_row(_rows(session, namespace, request), request, db.serve)
            row = session.execute(CHOSEN, {"of": chosen[0].order}).one() if chosen else None
        return _result(row, chosen[1], db.serve) if chosen else None
    return _find_hit(db.run, db.serve, namespace, request)


def _find_hit(run: RunQuery, default: str, namespace: str, request: Request) -> ResolveResult | None:
    while rows := run(PREPARED, _parameters(namespace, request)):
        chosen = choose_row(rows, request, default)
        if chosen is None:
            return None
        row = next(row for row in rows if row.seq == chosen[0].order)
        whole = run(PREPARED_CHOSEN, {"of": row.seq}) if row.manifest_json is None else [row]
        if whole is None:
            return None
        # Without a row, the artifact was removed in between: another one may serve.
        if whole:
            return _result(whole[0], chosen[1], default)
    return None


def _rows(session: Session, namespace: str, request: Request) -> Sequence[Row]:
    query = CHOOSABLE.where(ArtifactRow.digest.in_(request.related)).limit(len(request.related) * MAX_CANDIDATES)
    return session.execute(query, {"namespace": namespace}).all()


def _parameters(namespace: str, request: Request) -> dict[str, object]:
    digests = list(request.related)
    return {"namespace": namespace, "digest": digests[0], "generic": digests[-1]}


def _result(row: Row, match: Match, default: str) -> ResolveResult:
    base = f"{API}/artifacts/{row.id}/files/"
    reply = {
        "artifact": catalog.listed(row, default) | {"manifest": stored(row.manifest_json), "description": None},
        "match": encode(match),
        "urls": {name: base + quote(name) for name in json.loads(row.names_json)},
        "etag": catalog.etag_of(row, default),
        "recalls": row.recalls or 0,
    }
    return ResolveResult(row.id, reply)


def find_compiled(session: Session, namespace: str, request: Request) -> tuple[Candidate, Match] | None:
    """Return the artifact that makes a compile unnecessary: one that the namespace serves, or a built one.

    Raises `UsageError` as `hit` does.
    """
    return choose_row(_rows(session, namespace, request), request, default_serve(session), compiles=True)


def find_compiled_id(session: Session, namespace: str, request: Request) -> str | None:
    """Return the id of the artifact that `find_compiled` finds. Raises as it does."""
    chosen = find_compiled(session, namespace, request)
    return chosen[0].id if chosen else None


def choose_row(
    rows: Sequence[Row], request: Request, default: str, *, compiles: bool = False
) -> tuple[Candidate, Match] | None:
    """Choose among rows of `CHOOSABLE`. `default`: the rule of a namespace without one of its own."""
    if not rows:
        return None
    found = [catalog.candidate_of(row, request.related[row.digest]) for row in rows]
    rule = rows[0].serve or default
    return matching.choose_candidate(request.constraints, found, serve=rule_for_compiles(rule) if compiles else rule)
