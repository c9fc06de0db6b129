"""Resolve a request to an artifact: one indexed query, a choice among few rows, a reply assembled from stored JSON.

A whole fleet calls this at the same time: a hit runs one query and does not re-encode stored JSON. The digests of a
request are cached, since many hosts send the same request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from sqlalchemy import bindparam, or_, select

from mxr.artifact import matching
from mxr.artifact.matching import Candidate, Match
from mxr.artifact.qualities import Request
from mxr.protocol.artifacts import API
from mxr.util import codec
from mxr_registry.database.session import Database, PreparedQuery, Row
from mxr_registry.database.tables import ArtifactRow

from . import catalog, miss_report, misses
from .usage import UsageCounter

MATCHING_DIGEST = (
    select(*catalog.COLUMNS, ArtifactRow.promoted, ArtifactRow.names_json, ArtifactRow.manifest_json)
    .where(ArtifactRow.namespace == bindparam("namespace"))
    .where(or_(ArtifactRow.digest == bindparam("digest"), ArtifactRow.digest == bindparam("generic")))
)
"""All artifacts that could satisfy a request. Parameters: `namespace`, `digest`, `generic` (or `digest` again)."""

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


def read(body: bytes) -> ResolveRequest:
    """Decode the request in the body of a resolve. Raises `Usage`."""
    return _cached_read(body) if len(body) <= 4_096 else _read(body)


def _read(body: bytes) -> ResolveRequest:
    return ResolveRequest.of(codec.decode(Request, codec.parse(body, "The body")))


_cached_read = lru_cache(maxsize=4_096)(_read)


def resolve(db: Database, usage: UsageCounter, namespace: str, wanted: ResolveRequest) -> str:
    """Return the JSON of a `Hit`, and count a use of the artifact.

    Raises `NoSuchArtifact`, which explains the miss (the miss is counted), and `Usage` if the request leaves a feature
    open and the matching artifacts differ in it.
    """
    hit = find(db, namespace, wanted)
    if hit is not None:
        usage.count(namespace, hit.id)
        return hit.text
    with db.reading() as session:
        error, nearest = miss_report.explain(session, namespace, wanted.request, wanted.digest, wanted.family)
    misses.record(db, namespace, wanted.request, wanted.digest, nearest)
    raise error


def find(db: Database, namespace: str, wanted: ResolveRequest) -> ResolveResult | None:
    """Return the hit, or None. Raises `Usage` as `resolve` does."""
    values = {"namespace": namespace, "digest": wanted.digest, "generic": wanted.generic_digest or wanted.digest}
    rows = db.run_prepared(PREPARED, values)
    chosen = matching.choose(wanted.request.demands, candidates(rows, wanted.digest, wanted.family)) if rows else None
    if chosen is None:
        return None
    candidate, match = chosen
    return ResolveResult(candidate.id, _to_json(next(row for row in rows if row.id == candidate.id), match))


def candidates(rows: Sequence[Row], digest: str, family: str | None) -> list[Candidate]:
    """Convert the rows to candidates for `matching.choose`."""
    return [
        Candidate(
            id=row.id,
            qualities=catalog.qualities_of(row.qualities_json),
            promoted=row.promoted,
            order=row.seq,
            generic=None if row.digest == digest else family,
        )
        for row in rows
    ]


def _to_json(row: Row, match: Match) -> str:
    return (
        f'{{"artifact":{{{catalog.fields_of(row)},"manifest":{row.manifest_json}}},'
        f'"match":{json.dumps(match.to_json())},"urls":{{{_urls(row.id, row.names_json)}}},'
        f'"etag":{json.dumps(catalog.etag_of(row))}}}'
    )


def _urls(id: str, names: str) -> str:
    base = f"{API}/artifacts/{id}/files/"
    return ",".join(f'{json.dumps(name)}:"{base}{quote(name)}"' for name in json.loads(names))
