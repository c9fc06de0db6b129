"""Candidates for partial requests: the programs that can complete one, found by an index on what is never open."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from sqlalchemy import select

from mxr.artifact import candidates as rules
from mxr.artifact.attributes import Request
from mxr.artifact.key import FIXED, Key
from mxr.artifact.matching import Candidate
from mxr.artifact.partial import FACTS, PartialRequest
from mxr.errors import Json, NoSuchArtifactError
from mxr.util import codec
from mxr_registry.database.session import Database, Row, Session, default_serve
from mxr_registry.database.tables import ArtifactRow
from mxr_registry.decoding_cache import DecodingCache
from mxr_registry.json_text import stored

from . import catalog, miss_report, misses, namespaces, recalls

MAX_ROWS = 1_000
"""Artifacts that one partial request reads, the latest ones: with the same model, target, precision and options."""

MAX_KEY_BYTES = 4 << 20
"""Characters of the keys that one partial request reads: a key can be large, because its text comes from clients."""

PREFETCHED = 50
"""Rows that are read from the database at once."""

MAX_LISTED = 50
"""Candidates in one reply, the newest toolchains first."""

MAX_CACHED = 512 << 10
"""Bytes of the texts of decoded keys, and of partial requests, that are kept."""

COLUMNS = (*catalog.CANDIDATE_COLUMNS, ArtifactRow.key_json)

_KEYS = DecodingCache(lambda text: codec.decode(Key, json.loads(text), "key"), MAX_CACHED)


def find_candidates(db: Database, namespace: str, partial: PartialRequest) -> Json | None:
    """Return the JSON value of `Candidates`; None if there are none.

    Raises `UsageError` for a request without a target.
    """
    with db.reading() as session:
        rows, more = _read_rows(session, namespace, partial)
        default = default_serve(session)
    if not rows:
        return None
    found = rules.choices(partial, map(_program, rows), serve=rows[0].serve or default)
    if not found:
        return None
    keys = {row.id: row.key_json for row in rows}
    return {
        "candidates": [_listed(each, keys[each.id]) for each in found[:MAX_LISTED]],
        "total": len(found),
        "more": more,
        "varies": rules.varying(found) if len(found) > 1 else {},
    }


def _read_rows(session: Session, namespace: str, partial: PartialRequest) -> tuple[list[Row], bool]:
    """Return artifacts that could complete the request, and whether there are more.

    Those for the arch come first, then those for its generic family, each with the latest first.
    """
    rows: list[Row] = []
    size = 0
    for digest in partial.fixed_digests:
        result = session.execute(query_programs(namespace, digest, partial).execution_options(yield_per=PREFETCHED))
        with closing(result):
            for row in result:
                size += len(row.key_json)
                if len(rows) == MAX_ROWS or (rows and size > MAX_KEY_BYTES):
                    return rows, True
                rows.append(row)
    return rows, False


def _listed(choice: rules.Choice, key_json: str) -> Json:
    """Return a choice. The stored key is that of the choice, unless it is for the generic family."""
    key = key_json if _KEYS.get(key_json.encode()) is choice.key else choice.key.canonical
    return {"key": stored(key), "consumer": None, **{name: getattr(choice, name) for name in ("id", *rules.DIVIDING)}}


def no_candidates_error(
    session: Session, namespace: str, partial: PartialRequest, toolchains: Sequence[Mapping[str, Any]]
) -> NoSuchArtifactError:
    """Return the error for a request without candidates. `toolchains`: those of the workers that could compile it."""
    rule = namespaces.rule_of(session, namespace)
    error = miss_report.explain_partial(session, namespace, partial, rule, toolchains)
    error.context[recalls.RECALLS] = recalls.sequence_of(session, namespace)
    return error


def record_miss(db: Database, namespace: str, partial: PartialRequest, error: NoSuchArtifactError) -> None:
    """Count the miss of a partial request. One that leaves only the flags open counts as that with the default flags.

    No transaction may be open: a second connection could be one too many.
    """
    if set(partial.open_facts) <= {"offload_copy", "fast_math"}:
        request = _with_default_flags(partial)
        context = {**error.context, "digest": request.key.digest, "open": ()}
        misses.record_miss(db, namespace, request, context)
    else:
        misses.record_miss(db, namespace, partial, error.context)


def _with_default_flags(partial: PartialRequest) -> Request:
    known = {name: value for name in (*FIXED, *FACTS) if (value := getattr(partial, name)) is not None}
    return Request(Key(inputs=partial.inputs, **known), partial.constraints)  # type: ignore[arg-type]


def query_programs(namespace: str, digest: str, partial: PartialRequest) -> Any:
    """Return the query for the artifacts with the fixed digest that could complete the request, the latest first.

    One digest, so that the rows come in the order of one index: with several, SQLite reads all rows of the namespace.
    """
    row = ArtifactRow
    query = select(*COLUMNS).where(row.namespace == namespace, row.fixed_digest == digest)
    query = query.where(row.lost_at.is_(None), row.recall_json.is_(None))
    for name in ("migraphx", "rocm"):
        value = getattr(partial, name)
        if value is not None and name == "migraphx":
            query = query.where(row.migraphx == value)
        elif name == "rocm" and partial.releases:
            query = query.where(row.rocm.in_(partial.releases))
    return query.order_by(row.seq.desc()).limit(MAX_ROWS + 1)


def _program(row: Row) -> tuple[Key, Candidate]:
    return _KEYS.get(row.key_json.encode()), catalog.candidate_of(row, None)
