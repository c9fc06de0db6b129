"""The record of each request: what `/metrics` counts of it, and what its line in the log says."""

from __future__ import annotations

import logging
import re
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Scope

from mxr.display.logs import with_fields
from mxr_registry import counters

log = logging.getLogger("mxr_registry.requests")

RECORD = "mxr.record"
"""Where the record is in the scope of a request."""

UNKNOWN = "none"
"""The route of a request that no route answered: any number of paths may be tried."""

SECRET = re.compile(r"mxr_[0-9a-f]{12}_[0-9a-f]*")
LINKS = "/sign-in/"
"""Where links begin that sign a browser in: what follows is a secret."""

_CHILDREN: dict[tuple[str, int], tuple[Any, ...]] = {}
"""The metrics by route and status, both of which are few. To look them up takes as long as all the counting."""


@dataclass(slots=True)
class RequestRecord:
    """What is known of a request. `route`: method and path of its route. `status`: 0 where no reply began."""

    route: str = UNKNOWN
    principal: str = ""
    status: int = 0
    received: int = 0
    sent: int = 0
    begun: float = field(default_factory=time.perf_counter)
    facts: dict[str, str] = field(default_factory=dict)
    ended: bool = False

    def end(self, scope: Scope, *, logs: bool) -> None:
        """Count the request, whose reply ends or will not end, and write its line where `logs` says so; once."""
        if self.ended:
            return
        self.ended = True
        seconds = time.perf_counter() - self.begun
        found = _CHILDREN.get((self.route, self.status)) or self._children()
        found[0].inc()
        found[1].observe(seconds)
        if self.received:
            found[2].inc(self.received)
        if self.sent:
            found[3].inc(self.sent)
        if logs:
            self._log(scope, seconds)

    def _log(self, scope: Scope, seconds: float) -> None:
        method, path, client = scope["method"], scope["path"], scope.get("client")
        if path.startswith(LINKS):
            path = f"{LINKS}[a link]"
        if query := scope["query_string"]:
            path += f"?{query.decode('latin-1')}"
        path = SECRET.sub("mxr_[hidden]", path)
        address = client[0] if client else "a Unix socket"
        who = f" by {self.principal}" if self.principal else ""
        about = "".join(f", {name} {value}" for name, value in self.facts.items())
        fields = {
            **{"method": method, "path": path, "route": self.route, "status": self.status, "address": address},
            **{"principal": self.principal, "seconds": round(seconds, 6)},
            **{"received": self.received, "sent": self.sent, **self.facts},
        }
        log.info(
            *("%s %s: %d%s from %s in %.1f ms, %d bytes in, %d out%s", method, path, self.status, who, address),
            *(seconds * 1000, self.received, self.sent, about),
            extra=with_fields(fields),
        )

    def _children(self) -> tuple[Any, ...]:
        seconds, *sizes = (
            each.labels(self.route) for each in (counters.REQUEST_SECONDS, counters.RECEIVED, counters.SENT)
        )
        found = (counters.REQUESTS.labels(self.route, self.status), seconds, *sizes)
        return _CHILDREN.setdefault((self.route, self.status), found)


_CURRENT: ContextVar[RequestRecord | None] = ContextVar("request_record", default=None)


def begin() -> RequestRecord:
    """Return the record of a request that begins, which is the current one from now on."""
    found = RequestRecord()
    _CURRENT.set(found)
    return found


def note(**facts: str) -> None:
    """Add facts to the line of the current request: its digest, its job. Does nothing outside of requests."""
    found = _CURRENT.get()
    if found is not None:
        found.facts.update(facts)
