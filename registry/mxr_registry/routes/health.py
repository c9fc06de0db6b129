"""Is it alive, and can it serve?"""

from __future__ import annotations

from fastapi import APIRouter, Response

from mxr.errors import Temporary, Usage

from .deps import InServices, reply

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> Response:
    """Answers as long as the process does."""
    return reply('{"ok":true}')


@router.get("/readyz", summary="Can it serve: database and store?")
def readyz(rooms: InServices) -> Response:
    """Answers with success when the database and the store do; else with the error."""
    rooms.db.ping()
    try:
        rooms.store.ready()
    except Usage as problem:
        raise Temporary(problem.message, hint=problem.hint) from problem
    return reply('{"ok":true}')
