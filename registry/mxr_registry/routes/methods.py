"""The methods of a path, for replies with status 405.

Starlette names those of the first route that has the path, and takes the last word of a fixed path such as
`/v1/jobs/claim` for an id where the method is another one. Source of the rules: RFC 9110, section 15.5.6.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from fastapi import APIRouter, HTTPException
from fastapi.routing import APIRoute


def fixed_path(router: APIRouter, path: str, *others: str) -> None:
    """Answer 405 to the methods `others`, with which a route that has an id in its path would take this one."""

    async def refuse() -> None:
        raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)

    router.add_api_route(path, refuse, methods=list(others), include_in_schema=False, name=REFUSAL)


REFUSAL = "refuse_method"


def allowed_methods(routers: Iterable[APIRouter], path: str) -> list[str]:
    """Return the methods of a path in order. A fixed path has those of its own routes only."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    found = [route for route in routes if route.path == path] or [
        route for route in routes if route.path_regex.match(path)
    ]
    return sorted({method for route in found if route.name != REFUSAL for method in route.methods or ()})
