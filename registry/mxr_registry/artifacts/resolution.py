"""Resolve a request to an artifact: a choice among few rows, and a reply assembled from the stored JSON of one.

A whole fleet calls this at the same time: a hit runs two indexed queries and does not re-encode stored JSON. What a
publisher can make large, such as a manifest, is read of the chosen artifact only. The digests of a request are cached,
since many hosts send the same request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import quote

from sqlalchemy import bindparam, literal_column, or_, select

from mxr.artifact import matching
from mxr.artifact.attributes import RelatedKey, Request
from mxr.artifact.limits import MAX_CANDIDATES
from mxr.artifact.matching import Candidate, Match
from mxr.artifact.serving import BUILT, rule_for_compiles
from mxr.protocol.artifacts import API
from mxr.util import codec
from mxr_registry.database.session import Database, PreparedQuery, Row, Session, default_serve
from mxr_registry.database.tables import ArtifactRow
from mxr_registry.decoding_cache import DecodingCache

from . import catalog, miss_report, misses, namespaces
from .usage import UsageCounter

CHOOSABLE = (
    select(*catalog.CANDIDATE_COLUMNS, ArtifactRow.digest)
    .where(ArtifactRow.namespace == bindparam("namespace"))
    .order_by(
        ArtifactRow.promoted.desc(), (ArtifactRow.origin == literal_column(f"'{BUILT}'")).desc(), ArtifactRow.seq.desc()
    )
)
"""The artifacts of a namespace, with what a choice needs. Parameter: `namespace`.

Their order decides only which are left out where a key has more than `MAX_CANDIDATES`."""

MATCHING_DIGEST = (
    CHOOSABLE.where(or_(ArtifactRow.digest == bindparam("digest"), ArtifactRow.digest == bindparam("generic")))
    .limit(literal_column(str(2 * MAX_CANDIDATES)))
    .offset(literal_column("0"))
)
"""The artifacts that could satisfy a request. Parameters: `namespace`, `digest`, `generic` (or `digest` again)."""

CHOSEN = select(*catalog.COLUMNS, ArtifactRow.names_json, ArtifactRow.manifest_json).where(
    ArtifactRow.seq == bindparam("of")
)
"""One artifact, with what a reply needs. Parameter: `of`, its `seq`."""

MAX_AT_ONCE = 4 << 10
"""Bytes of a body that the event loop decodes itself, see `hit_at_once`."""

MAX_CACHED = 1 << 20
"""Bytes of the bodies whose decoded requests are kept."""

PREPARED = PreparedQuery(MATCHING_DIGEST)
PREPARED_CHOSEN = PreparedQuery(CHOSEN)


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
    found = find_hit(db, namespace, wanted)
    return None if found is None else _count(usage, namespace, found)


def hit_at_once(db: Database, usage: UsageCounter, namespace: str, body: bytes) -> str | None:
    """Return the JSON of a `Hit` as `hit` does, without a thread; None if there is none, or if it could take long.

    For the event loop: see `Database.run_at_once`. Raises `UsageError`.
    """
    if len(body) > MAX_AT_ONCE:
        return None
    wanted = decode_request(body)
    rows = db.run_at_once(PREPARED, _parameters(namespace, wanted)) if wanted.is_short else None
    chosen = choose_row(rows, wanted, db.serve) if rows else None
    found = db.run_at_once(PREPARED_CHOSEN, {"of": chosen[0].order}) if chosen else None
    return _count(usage, namespace, _result(found[0], chosen[1], db.serve)) if chosen and found else None


def _count(usage: UsageCounter, namespace: str, found: ResolveResult) -> str:
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
    if not wanted.is_short:
        with db.reading() as session:
            chosen = choose_row(_rows(session, namespace, wanted), wanted, db.serve)
            row = session.execute(CHOSEN, {"of": chosen[0].order}).one() if chosen else None
        return _result(row, chosen[1], db.serve) if chosen else None
    while (
        chosen := choose_row(db.run_prepared(PREPARED, _parameters(namespace, wanted)), wanted, db.serve)
    ) is not None:
        rows = db.run_prepared(PREPARED_CHOSEN, {"of": chosen[0].order})
        # Without a row, the artifact was removed in between: another one may serve.
        if rows:
            return _result(rows[0], chosen[1], db.serve)
    return None


def _rows(session: Session, namespace: str, wanted: ResolveRequest) -> Sequence[Row]:
    if wanted.is_short:
        return session.execute(MATCHING_DIGEST, _parameters(namespace, wanted)).all()
    query = CHOOSABLE.where(ArtifactRow.digest.in_(wanted.related)).limit(len(wanted.related) * MAX_CANDIDATES)
    return session.execute(query, {"namespace": namespace}).all()


def _parameters(namespace: str, wanted: ResolveRequest) -> dict[str, object]:
    digests = list(wanted.related)
    return {"namespace": namespace, "digest": digests[0], "generic": digests[-1]}


def _result(row: Row, match: Match, default: str) -> ResolveResult:
    return ResolveResult(row.id, _to_json(row, match, default))


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
