"""The store of a registry belongs to it: both have the registry's id, and nothing starts on another one."""

from __future__ import annotations

from sqlalchemy import func, select

from mxr.display.text import counted
from mxr.errors import MxrError, UsageError
from mxr_registry.storage.store import Store

from .identity import RegistryIdentity
from .session import Database
from .tables import BlobRow

ADOPT = "After a restore by other means, run `mxr-registry adopt-store`."


def id_of(db: Database) -> str:
    """Return the id of the registry with these rows. Raises `TemporaryError`, and `MxrError` where it has none."""
    db.ping()
    found = RegistryIdentity(db).read()
    if found is None:
        raise MxrError("The database has no id of a registry.", hint="Restore a backup: a row of it is lost.")
    return found


def claim_store(db: Database, store: Store, *, serve: bool = False) -> bool:
    """Check that a store is the one of this registry. From then on, the store checks it by itself.

    `serve`: a new store becomes that of a registry without bytes; then it returns True. Raises `UsageError` for a store
    of another registry, one without an id that has bytes, and an empty one where rows have bytes.
    """
    store.reach()
    id, found, where = id_of(db), store.owner.read(), store.owner.where
    if found not in (None, id):
        raise UsageError(
            f"The store {where} belongs to registry {found}; this one is {id}.",
            hint=f"Correct store.url, or the database. {ADOPT}",
        )
    new = found is None
    if new:
        with db.reading() as session:
            blobs = int(session.execute(select(func.count()).select_from(BlobRow)).scalar_one())
        empty = store.is_empty()
        if blobs and empty:
            raise UsageError(
                f"The store {where} is empty, but registry {id} has {counted(blobs, 'blob')} in it.",
                hint=f"Mount the file system, or correct store.url. {ADOPT}",
            )
        if not empty:
            raise UsageError(
                f"The store {where} has the bytes of a registry, but not the id of this one, {id}.",
                hint=f"Correct store.url. {ADOPT}",
            )
        if not serve:
            return False
        store.adopt(id)
    store.owner.wanted = lambda: id
    return new


def require_id(db: Database, wanted: str) -> None:
    """Raise `UsageError` where the registry with these rows is not the one of `serve.registry_id`."""
    found = id_of(db)
    if found != wanted:
        raise UsageError(
            f"serve.registry_id is {wanted}, but the database is that of registry {found}.",
            hint="Mount or name the right data directory or database, or correct serve.registry_id.",
        )
