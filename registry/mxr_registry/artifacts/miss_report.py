"""Why there is a miss: the artifacts of the model, for `mxr.artifact.misses` to compare with the request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from sqlalchemy import select

from mxr.artifact import misses
from mxr.artifact.attributes import Request
from mxr.artifact.key import Key
from mxr.artifact.misses import MissContext, MissedArtifact
from mxr.artifact.partial import PartialRequest
from mxr.errors import NoSuchArtifactError
from mxr.util import codec
from mxr_registry.database.session import Row, Session
from mxr_registry.database.tables import ArtifactRow

from . import catalog, models, namespaces

MAX_COMPARED = 500
"""Maximum number of artifacts of the model to compare with a request: newest first, same arch before others."""

MAX_KEY_BYTES = 4 << 20
"""Characters of the keys that are compared: a key can be large, because its text comes from clients."""


def miss_error(session: Session, namespace: str, request: Request, rule: str) -> NoSuchArtifactError:
    """Return the error for a request that no artifact satisfies. `rule`: the rule `serve` of the namespace."""
    found, where = _artifacts(session, namespace, request.key.model, request.key.arch, rule)
    return misses.miss_error(request, found, where)


def explain_partial(
    session: Session, namespace: str, partial: PartialRequest, rule: str, toolchains: Sequence[Mapping[str, Any]]
) -> NoSuchArtifactError:
    """Return the error for a partial request that no artifact can complete.

    `toolchains`: those of the workers that could compile it.
    """
    found, where = _artifacts(session, namespace, partial.model, partial.arch, rule)
    return misses.partial_miss_error(partial, found, where, toolchains)


def _artifacts(
    session: Session, namespace: str, model: str, arch: str | None, rule: str
) -> tuple[list[MissedArtifact], MissContext]:
    found = [_artifact(row) for row in _rows(session, namespace, model, arch)]
    known = bool(found) or models.is_known(session, namespace, model)
    return found, MissContext(namespace, rule, known, namespaces.change_command(namespace))


def _artifact(row: Row) -> MissedArtifact:
    key = codec.decode(Key, json.loads(row.key_json), "key")
    recall = None if row.recall_json is None else json.loads(row.recall_json)["word"]
    return MissedArtifact(key, catalog.candidate_of(row, None), row.lost_at is not None, recall)


def _rows(session: Session, namespace: str, model: str, arch: str | None) -> Iterator[Row]:
    row = ArtifactRow
    query = (
        select(
            *(row.seq, row.id, row.key_json, row.attributes_json, row.promoted, row.origin, row.sources_json),
            *(row.lost_at, row.recall_json),
        )
        .where(row.namespace == namespace, row.model == model)
        .order_by(row.seq.desc())
    )
    count = size = 0
    for archs in (row.arch.is_not_distinct_from(arch), row.arch.is_distinct_from(arch)):
        with closing(session.execute(query.where(archs).limit(MAX_COMPARED).execution_options(yield_per=50))) as found:
            for each in found:
                count, size = count + 1, size + len(each.key_json)
                if count > MAX_COMPARED or (count > 1 and size > MAX_KEY_BYTES):
                    return
                yield each
