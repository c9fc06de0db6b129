"""The record of each request: what `/metrics` counts of it, and what its line in the log says."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from mxr_registry import counters

RECORD = "mxr.record"
"""Where the record is in the scope of a request."""

UNKNOWN = "none"
"""The route of a request that no route answered: any number of paths may be tried."""

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

    def count(self) -> None:
        """Count the request, which has ended."""
        found = _CHILDREN.get((self.route, self.status)) or self._children()
        found[0].inc()
        found[1].observe(time.perf_counter() - self.begun)
        if self.received:
            found[2].inc(self.received)
        if self.sent:
            found[3].inc(self.sent)

    def _children(self) -> tuple[Any, ...]:
        seconds, *sizes = (
            each.labels(self.route) for each in (counters.REQUEST_SECONDS, counters.RECEIVED, counters.SENT)
        )
        found = (counters.REQUESTS.labels(self.route, self.status), seconds, *sizes)
        return _CHILDREN.setdefault((self.route, self.status), found)
