"""Compile again, on the GPU itself, what was cross-compiled for it: when a worker with that GPU registers, or is back.

The jobs are the registry's own and have the lowest priority. Hosts get the tuned program at their next fetch, because
it is preferred to the cross-compiled one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

from sqlalchemy import select

from mxr.artifact.attributes import Constraints, Request
from mxr.artifact.key import Key
from mxr.errors import MxrError
from mxr.protocol import capabilities
from mxr.protocol import jobs as job_protocol
from mxr.protocol.access import ASK, LOCAL
from mxr.util.codec import decode
from mxr_registry.access.scopes import Caller
from mxr_registry.artifacts import catalog, resolution
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.session import Database, Session
from mxr_registry.database.tables import ArtifactRow
from mxr_registry.storage.store import Store

from . import submission

LOWEST = -100
MAX_READ = 1_000
"""Cross-compiled programs that one registration looks at, those used last."""
MAX_QUEUED = 100
"""Jobs that one registration queues."""
CROSS = '%"tuning":"cross"%'


def queue_upgrades(
    db: Database, store: Store, rules: JobRules, namespace: str, can: job_protocol.WorkerCapabilities
) -> None:
    """Queue what this worker can compile natively and nobody has yet. What cannot be asked for is left as it is."""
    if not rules.upgrade_cross or all(target.kind != "gpu" for target in can.targets):
        return
    with db.reading() as session:
        wanted = list(_wanted(session, namespace, can))
    caller = Caller(LOCAL, namespace, frozenset({ASK}), token="")
    for request in wanted[:MAX_QUEUED]:
        with suppress(MxrError):
            message = job_protocol.CompileRequest(request.key, request.constraints, priority=LOWEST)
            submission.submit(db, store, rules, caller, message)


def _wanted(session: Session, namespace: str, can: job_protocol.WorkerCapabilities) -> Iterator[Request]:
    row = ArtifactRow
    archs = {target.arch for target in can.targets}
    query = select(row.key_json, row.attributes_json).where(
        row.namespace == namespace, row.arch.in_(archs), row.attributes_json.like(CROSS), row.lost_at.is_(None)
    )
    for key_json, attributes_json in session.execute(query.order_by(row.used_at.desc()).limit(MAX_READ)):
        made = catalog.attributes_of(attributes_json)
        key = decode(Key, json.loads(key_json), "key")
        request = Request(key, Constraints(num_cu=made.num_cu, chiplets=made.chiplets))
        method = capabilities.able(can, request)
        if method is None or method.cross:
            continue
        with suppress(MxrError):
            if resolution.find_compiled_id(session, namespace, request) is None:
                yield request
