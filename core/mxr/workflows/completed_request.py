"""A complete request, and the fetch of its program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from mxr.artifact.matching import Match
from mxr.cache.store import Cache
from mxr.errors import NoSuchArtifactError
from mxr.request.builder import PreparedRequest
from mxr.util.frozen import dataclass

from . import fetch as fetch_workflow
from .fetch import Connect, Fetched, LookupResult, Watch, unwatched

if TYPE_CHECKING:
    from mxr.client.registry import Client


@dataclass(frozen=True, slots=True)
class CompletedRequest:
    """A complete request. `assumed`: the facts that were taken from the only program, by name.

    `command`: the command that requests the same and leaves nothing open. `found`: the program in the cache, where the
    registry could not be asked.
    """

    asked: PreparedRequest
    assumed: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    found: LookupResult | None = None

    def fetch(
        self, cache: Cache, connect: Connect | None, *, refresh: bool = False, watch: Watch = unwatched
    ) -> Fetched:
        """Fetch the program. Its match tells what was assumed. Raises as `fetch.fetch` does."""
        request = self.asked.request
        if self.found is not None:
            fetched = fetch_workflow.download_found(request, self.found, cache, watch=watch)
        else:
            try:
                fetched = fetch_workflow.fetch(request, cache, connect, refresh=refresh, watch=watch)
            except NoSuchArtifactError:
                if connect is None or request.key.vendor != "hygon":
                    raise
                larger = self._fetch_larger(cache, connect(), watch)
                if larger is None:
                    raise
                fetched = larger
        match = Match(fetched.match.relaxed, {**fetched.match.assumed, **self.assumed})
        return replace(fetched, answer=replace(fetched.answer, match=match))

    def _fetch_larger(self, cache: Cache, client: Client, watch: Watch) -> Fetched | None:
        """Fetch a program that takes the requested shapes and larger ones; None if there is none."""
        from .larger_shapes import can_be_larger, find_larger

        request = self.asked.request
        larger = find_larger(request, client) if can_be_larger(request) else None
        if larger is None:
            return None
        found = fetch_workflow.fetch(larger.request, cache, lambda: client, watch=watch)
        return replace(found, warnings=(*found.warnings, larger.why), reshape=request.key.inputs)
