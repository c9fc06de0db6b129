"""Resolving: one indexed equality, a choice among few, and an answer put together from what is stored.

This is the path that a whole fleet takes at once: a hit reads once and encodes nothing that is stored as JSON. What a
request says of itself (its digests) is worked out once for the many hosts that send the same one.
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

ASKED = (
    select(*catalog.COLUMNS, ArtifactRow.promoted, ArtifactRow.names_json, ArtifactRow.manifest_json)
    .where(ArtifactRow.namespace == bindparam("namespace"))
    .where(or_(ArtifactRow.digest == bindparam("digest"), ArtifactRow.digest == bindparam("generic")))
)
"""Given `namespace`, `digest` and `generic` (the digest again where there is none): all that could serve."""

QUICK = PreparedQuery(ASKED)


@dataclass(frozen=True, slots=True)
class ResolveRequest:
    """A request, the digest that artifacts for it have, and that of its generic family with the family's name."""

    request: Request
    digest: str
    generic_digest: str | None
    family: str | None

    @classmethod
    def of(cls, request: Request) -> ResolveRequest:
        """What follows from a request."""
        generic = request.key.generic()
        return cls(request, request.key.digest, generic.digest if generic else None, generic.arch if generic else None)


@dataclass(frozen=True, slots=True)
class ResolveResult:
    """What serves a request: the artifact's id, and the JSON of the `wire.Hit`."""

    id: str
    text: str


def read(body: bytes) -> ResolveRequest:
    """The request in the body of a resolve. Raises `Usage`."""
    return _remembered(body) if len(body) <= 4_096 else _read(body)


def _read(body: bytes) -> ResolveRequest:
    return ResolveRequest.of(codec.decode(Request, codec.parse(body, "The body")))


_remembered = lru_cache(maxsize=4_096)(_read)


def resolve(db: Database, tally: UsageCounter, namespace: str, asked: ResolveRequest) -> str:
    """The JSON of a `wire.Hit`, counted as a use.

    Raises `NoSuchArtifact` that says why and what to do (and the miss is counted), `Usage` where a feature is open and
    those that would serve disagree.
    """
    hit = find(db, namespace, asked)
    if hit is not None:
        tally.count(namespace, hit.id)
        return hit.text
    with db.reading() as session:
        reason, nearest = miss_report.explain(session, namespace, asked.request, asked.digest, asked.family)
    misses.record(db, namespace, asked.request, asked.digest, nearest)
    raise reason


def find(db: Database, namespace: str, asked: ResolveRequest) -> ResolveResult | None:
    """The hit, or None. Raises `Usage` as `resolve` does."""
    wanted = {"namespace": namespace, "digest": asked.digest, "generic": asked.generic_digest or asked.digest}
    rows = db.glance(QUICK, wanted)
    chosen = matching.choose(asked.request.demands, candidates(rows, asked.digest, asked.family)) if rows else None
    if chosen is None:
        return None
    candidate, fit = chosen
    return ResolveResult(candidate.id, _written(next(row for row in rows if row.id == candidate.id), fit))


def candidates(rows: Sequence[Row], digest: str, family: str | None) -> list[Candidate]:
    """The rows as the rules of choice see them."""
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


def _written(row: Row, fit: Match) -> str:
    return (
        f'{{"artifact":{{{catalog.fields_of(row)},"manifest":{row.manifest_json}}},'
        f'"match":{json.dumps(fit.to_json())},"urls":{{{_urls(row.id, row.names_json)}}}}}'
    )


def _urls(id: str, names: str) -> str:
    base = f"{API}/artifacts/{id}/files/"
    return ",".join(f'{json.dumps(name)}:"{base}{quote(name)}"' for name in json.loads(names))
