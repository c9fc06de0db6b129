"""Resolve a request to an artifact: one indexed query, a choice among few rows, a reply assembled from stored JSON.

A whole fleet calls this at the same time: a hit runs one query and does not re-encode stored JSON. The digests of a
request are cached, since many hosts send the same request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import quote

from sqlalchemy import bindparam, or_, select

from mxr.artifact import matching
from mxr.artifact.attributes import Request
from mxr.artifact.matching import Candidate, Match
from mxr.artifact.serving import rule_for_compiles
from mxr.protocol.artifacts import API
from mxr.util import codec
from mxr_registry.database.session import Database, PreparedQuery, Row, Session, default_serve
from mxr_registry.database.tables import ArtifactRow
from mxr_registry.decoding_cache import DecodingCache

from . import catalog, miss_report, misses, namespaces
from .usage import UsageCounter

MATCHING_DIGEST = (
    select(*catalog.COLUMNS, ArtifactRow.promoted, ArtifactRow.names_json, ArtifactRow.manifest_json)
    .where(ArtifactRow.namespace == bindparam("namespace"))
    .where(or_(ArtifactRow.digest == bindparam("digest"), ArtifactRow.digest == bindparam("generic")))
)
"""All artifacts that could satisfy a request. Parameters: `namespace`, `digest`, `generic` (or `digest` again)."""

MAX_AT_ONCE = 4 << 10
"""Bytes of a body that the event loop decodes itself, see `hit_at_once`."""

MAX_CACHED = 1 << 20
"""Bytes of the bodies whose decoded requests are kept."""

PREPARED = PreparedQuery(MATCHING_DIGEST)


@dataclass(frozen=True, slots=True)
class ResolveRequest:
    """A request, the digest of its key, and the digest and name of its generic target family, if it has one."""

    request: Request
    digest: str
    generic_digest: str | None
    family: str | None

    @classmethod
    def of(cls, request: Request) -> ResolveRequest:
        """Compute the digests of a request."""
        generic = request.key.generic()
        return cls(request, request.key.digest, generic.digest if generic else None, generic.arch if generic else None)


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
    rows = db.run_at_once(PREPARED, _parameters(namespace, wanted))
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
        error, nearest = miss_report.miss_error(session, namespace, wanted.request, wanted.digest, wanted.family, rule)
    misses.record_miss(db, namespace, wanted.request, wanted.digest, nearest)
    raise error


def find_hit(db: Database, namespace: str, wanted: ResolveRequest) -> ResolveResult | None:
    """Return the hit, or None. Raises `UsageError` as `hit` does."""
    return _result(db.run_prepared(PREPARED, _parameters(namespace, wanted)), wanted, db.serve)


def _parameters(namespace: str, wanted: ResolveRequest) -> dict[str, object]:
    return {"namespace": namespace, "digest": wanted.digest, "generic": wanted.generic_digest or wanted.digest}


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
    rows = session.execute(MATCHING_DIGEST, _parameters(namespace, wanted)).all()
    return choose_row(rows, wanted, default_serve(session), compiles=True)


def choose_row(
    rows: Sequence[Row], wanted: ResolveRequest, default: str, *, compiles: bool = False
) -> tuple[Candidate, Match] | None:
    """Choose among rows of `MATCHING_DIGEST`. `default`: the rule of a namespace without one of its own."""
    if not rows:
        return None
    found = [catalog.candidate_of(row, None if row.digest == wanted.digest else wanted.family) for row in rows]
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
