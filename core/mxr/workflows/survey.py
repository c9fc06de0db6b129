"""Ask a registry for the status of many requests, a few hundred at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from mxr.artifact.attributes import Request
from mxr.client.retry import OUTAGE, retry, until
from mxr.errors import TooLargeError
from mxr.protocol.surveys import RequestStatus
from mxr.util.codec import canonical

if TYPE_CHECKING:
    from mxr.client.registry import Client

AT_ONCE = 200
"""Requests in one survey, which takes the registry about a tenth of a second."""


def request_statuses(client: Client, requests: Sequence[Request]) -> list[RequestStatus]:
    """Return the status of each request, in order. Equal requests are sent once.

    A batch that the registry finds too large is sent in halves. Raises `UnreachableError`: soon if the registry does
    not answer at all, and after `retry.OUTAGE` once it has answered.
    """
    distinct = {canonical(request.to_json()): request for request in requests}
    names, found = list(distinct), dict[str, RequestStatus]()
    batches = [names[begin : begin + AT_ONCE] for begin in range(0, len(names), AT_ONCE)]
    while batches:
        batch = batches.pop(0)
        survey = partial(client.survey, [distinct[name] for name in batch])
        try:
            reply = retry(until(OUTAGE), survey) if found else survey()
        except TooLargeError:
            if len(batch) == 1:
                raise
            middle = len(batch) // 2
            batches[:0] = [batch[:middle], batch[middle:]]
            continue
        found |= dict(zip(batch, reply.standings, strict=True))
    return [found[canonical(request.to_json())] for request in requests]
