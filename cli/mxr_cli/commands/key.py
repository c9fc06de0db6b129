"""`mxr key`: the key of a request, its digest and the identity of the model."""

from __future__ import annotations

import click

from mxr.request.builder import RequestOptions
from mxr_cli.options import Session, common, matching, request
from mxr_cli.output import echo, note, print_json


@click.command
@click.argument("model", metavar="MODEL")
@request
@matching
@click.option(
    "--request",
    "as_request",
    is_flag=True,
    help="Print the request as the API takes it: POST /v1/resolve, POST /v1/jobs.",
)
@common
def key(session: Session, options: RequestOptions, model: str, as_request: bool) -> None:
    """Show the key of a request for MODEL, its digest and the identity of the model, without fetching anything."""
    from mxr.workflows.preparation import prepare

    host, defaults = session.host(options), session.defaults(model)
    asked = prepare(options, model, session.cache(), session.client, host, defaults=defaults)
    request_key = asked.request.key
    for line in asked.notes:
        note(f"mxr: {line}")
    if as_request:
        print_json(asked.request.to_json())
        return
    if session.as_json:
        print_json({"model": asked.model.identity, "digest": request_key.digest, **asked.request.to_json()})
        return
    echo(f"model   {asked.model.identity}")
    echo(f"digest  {request_key.digest}")
    echo(f"key     {request_key.canonical}")
