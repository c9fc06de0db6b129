"""The identity of the registry: the UUID of its database, read once."""

from __future__ import annotations

from sqlalchemy import select

from mxr.errors import MxrError

from .session import Database
from .tables import RegistryRow


class RegistryIdentity:
    """The UUID of a database. It is read at the first use, because an application opens no connection before."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.known: str | None = None
        """The UUID after the first successful `read`."""

    def read(self) -> str | None:
        """Return the UUID, or None while the database does not answer."""
        if self.known is None:
            try:
                with self._db.reading() as session:
                    query = select(RegistryRow.uuid).order_by(RegistryRow.number).limit(1)
                    self.known = session.execute(query).scalar_one_or_none()
            except MxrError:
                return None
        return self.known
