"""Revoked tokens stay revoked: their ids are in the store too, so that an older database does not revive them.

A backup of the database is older than what was revoked after it. When such a backup is served, the ids in the store
revoke those tokens again.
"""

from __future__ import annotations

import logging

from mxr.errors import MxrError
from mxr.protocol.access import Token
from mxr_registry.database.session import Database
from mxr_registry.storage.store import Store

from . import tokens

log = logging.getLogger("mxr_registry")


def revoke(db: Database, store: Store, id: str) -> Token:
    """Revoke a token in the database, and then in the store, and return it. Raises `NotFoundError`, `TemporaryError`.

    Where the store does not take it, the token is revoked all the same, and `reconcile` writes it later.
    """
    with db.writing() as session:
        found = tokens.revoke_token(session, id)
    _record(store, id)
    return found


def reconcile(db: Database, store: Store) -> int:
    """Revoke in the database what is revoked in the store, and the other way round. Return how many revived tokens.

    Raises `TemporaryError`.
    """
    in_store = store.revoked_tokens()
    with db.reading() as session:
        in_database = set(tokens.revoked(session))
    count = 0
    if in_store - in_database:
        with db.writing() as session:
            count = tokens.revoke_tokens(session, sorted(in_store - in_database))
    if count:
        log.warning("revoked %d tokens again that this database had as valid: it comes from an older backup", count)
    for id in sorted(in_database - in_store):
        if not _record(store, id):
            break
    return count


def _record(store: Store, id: str) -> bool:
    try:
        store.record_revoked_token(id)
    except MxrError as problem:
        log.warning("the store does not know yet that token %s is revoked: %s", id, problem)
        return False
    return True
