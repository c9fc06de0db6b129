"""Resolve a request to an artifact: one indexed query, a choice among few rows, a reply assembled from stored JSON.

A whole fleet calls this at the same time: a hit runs one query and does not re-encode stored JSON. The digests of a
request are cached, since many hosts send the same request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import quote

from sqlalchemy import bindparam, or_, select

from mxr.artifact import matching
from mxr.artifact.attributes import RelatedKey, Request
from mxr.artifact.matching import Candidate, Match
from mxr.artifact.serving import rule_for_compiles
from mxr.protocol.artifacts import API
from mxr.util import codec
from mxr_registry.database.session import Database, PreparedQuery, Row, Session, default_serve
from mxr_registry.database.tables import ArtifactRow
from mxr_registry.decoding_cache import DecodingCache

from . import catalog, miss_report, misses, namespaces
from .usage import UsageCounter

CHOOSABLE = select(*catalog.COLUMNS, ArtifactRow.promoted, ArtifactRow.names_json, ArtifactRow.manifest_json).where(
    ArtifactRow.namespace == bindparam("namespace")
)
"""The artifacts of a namespace, with all that a choice and a reply need. Parameter: `namespace`."""

MATCHING_DIGEST = CHOOSABLE.where(
    or_(ArtifactRow.digest == bindparam("digest"), ArtifactRow.digest == bindparam("generic"))
)
"""All artifacts that could satisfy a request. Parameters: `namespace`, `digest`, `generic` (or `digest` again)."""

MAX_AT_ONCE = 4 << 10
"""Bytes of a body that the event loop decodes itself, see `hit_at_once`."""

MAX_CACHED = 1 << 20
"""Bytes of the bodies whose decoded requests are kept."""

PREPARED = PreparedQuery(MATCHING_DIGEST)


@dataclass(frozen=True, slots=True)
class ResolveRequest:
    """A request, and the keys whose programs can serve it, by digest: its own first."""

    request: Request
    related: Mapping[str, RelatedKey]

    @classmethod
    def of(cls, request: Request) -> ResolveRequest:
        """Compute the digests of a request."""
        return cls(request, request.related)

    @property
    def is_short(self) -> bool:
        """Whether it has no more keys than `MATCHING_DIGEST` has parameters: its own, and one of the generic family."""
        return len(self.related) <= 2


@dataclass(frozen=True, slots=True)
class ResolveResult:
    """The artifact that satisfies a request: its id, and the JSON of the `Hit` (see `mxr.protocol.artifacts`)."""

    id: str
    text: str


def decode_request(body: bytes) -> ResolveRequest:
    """Decode the request in the body of a resolve. Raises `UsageError`."""
    return _REQUESTS.get(body)


def _read(body: bytes) -> ResolveRequest:
    return ResolveRequest.of(codec.decode(Request, codec.parse(body, "The body")))


_REQUESTS = DecodingCache(_read, MAX_CACHED)


def hit(db: Database, usage: UsageCounter, namespace: str, wanted: ResolveRequest) -> str | None:
    """Return the JSON of a `Hit`, and count a use of the artifact; None if there is none.

    Raises `UsageError` if the request leaves a feature open and the matching artifacts differ in it.
    """
    return _count(usage, namespace, find_hit(db, namespace, wanted))


def hit_at_once(db: Database, usage: UsageCounter, namespace: str, body: bytes) -> str | None:
    """Return the JSON of a `Hit` as `hit` does, without a thread; None if there is none, or if it could take long.

    For the event loop: see `Database.run_at_once`. Raises `UsageError`.
    """
    if len(body) > MAX_AT_ONCE:
        return None
    wanted = decode_request(body)
    rows = db.run_at_once(PREPARED, _parameters(namespace, wanted)) if wanted.is_short else None
    return _count(usage, namespace, _result(rows, wanted, db.serve)) if rows else None


def _count(usage: UsageCounter, namespace: str, found: ResolveResult | None) -> str | None:
    if found is None:
        return None
    usage.count(namespace, found.id)
    return found.text


def refuse(db: Database, namespace: str, wanted: ResolveRequest) -> NoReturn:
    """Count a miss. Raises `NoSuchArtifactError`, which explains it."""
    with db.reading() as session:
        rule = namespaces.rule_of(session, namespace)
        error, nearest = miss_report.miss_error(session, namespace, wanted.request, rule)
    misses.record_miss(db, namespace, wanted.request, wanted.request.key.digest, nearest)
    raise error


def find_hit(db: Database, namespace: str, wanted: ResolveRequest) -> ResolveResult | None:
    """Return the hit, or None. Raises `UsageError` as `hit` does."""
    if wanted.is_short:
        return _result(db.run_prepared(PREPARED, _parameters(namespace, wanted)), wanted, db.serve)
    with db.reading() as session:
        return _result(_rows(session, namespace, wanted), wanted, db.serve)


def _rows(session: Session, namespace: str, wanted: ResolveRequest) -> Sequence[Row]:
    if wanted.is_short:
        return session.execute(MATCHING_DIGEST, _parameters(namespace, wanted)).all()
    query = CHOOSABLE.where(ArtifactRow.digest.in_(wanted.related))
    return session.execute(query, {"namespace": namespace}).all()


def _parameters(namespace: str, wanted: ResolveRequest) -> dict[str, object]:
    digests = list(wanted.related)
    return {"namespace": namespace, "digest": digests[0], "generic": digests[-1]}


def _result(rows: Sequence[Row], wanted: ResolveRequest, default: str) -> ResolveResult | None:
    chosen = choose_row(rows, wanted, default)
    if chosen is None:
        return None
    candidate, match = chosen
    row = next(row for row in rows if row.id == candidate.id)
    return ResolveResult(candidate.id, _to_json(row, match, default))


def find_compiled(session: Session, namespace: str, request: Request) -> tuple[Candidate, Match] | None:
    """Return the artifact that makes a compile unnecessary: one that the namespace serves, or a built one.

    Raises `UsageError` as `hit` does.
    """
    wanted = ResolveRequest.of(request)
    return choose_row(_rows(session, namespace, wanted), wanted, default_serve(session), compiles=True)


def choose_row(
    rows: Sequence[Row], wanted: ResolveRequest, default: str, *, compiles: bool = False
) -> tuple[Candidate, Match] | None:
    """Choose among rows of `CHOOSABLE`. `default`: the rule of a namespace without one of its own."""
    if not rows:
        return None
    found = [catalog.candidate_of(row, wanted.related[row.digest]) for row in rows]
    rule = rows[0].serve or default
    return matching.choose_candidate(
        wanted.request.constraints, found, serve=rule_for_compiles(rule) if compiles else rule
    )


def _to_json(row: Row, match: Match, default: str) -> str:
    fields = catalog.fields_of(row, default)
    return (
        f'{{"artifact":{{{fields},"manifest":{row.manifest_json}}},'
        f'"match":{json.dumps(match.to_json())},"urls":{{{_urls(row.id, row.names_json)}}},'
        f'"etag":{json.dumps(catalog.etag_of(row, fields))}}}'
    )


def _urls(id: str, names: str) -> str:
    base = f"{API}/artifacts/{id}/files/"
    return ",".join(f'{json.dumps(name)}:"{base}{quote(name)}"' for name in json.loads(names))
