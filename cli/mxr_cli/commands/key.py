"""`mxr key` and `mxr identity`: the key of a request and its digest, and the identity of a model."""

from __future__ import annotations

import click

from mxr.request.builder import RequestOptions
from mxr_cli.help import command, completes
from mxr_cli.options import FOLLOW_LINKS, Session, common, matching, request
from mxr_cli.output import echo, note, print_json


@command(usual=("arch", "rocm", "migraphx", "batch", "inputs", "precision", "consumer", "kind"))
@click.argument("model", metavar="MODEL", shell_complete=completes("model"))
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
    prepared = prepare(options, model, session.cache(), session.client, host, defaults=defaults)
    request_key = prepared.request.key
    for line in prepared.notes:
        note(f"mxr: {line}")
    if as_request:
        print_json(prepared.request.to_json())
        return
    if session.as_json:
        print_json({"model": prepared.model.identity, "digest": request_key.digest, **prepared.request.to_json()})
        return
    echo(f"model   {prepared.model.identity}")
    echo(f"digest  {request_key.digest}")
    echo(f"key     {request_key.canonical}")


@command()
@click.argument("model", metavar="MODEL", shell_complete=completes("model"))
@FOLLOW_LINKS
@common
def identity(session: Session, model: str, *, follow_links: bool) -> None:
    """Print the identity of MODEL, an ONNX file with its external data: sha256: and 64 hex digits.

    It depends on the content only, not on names, and is the same on every host: no GPU, no MIGraphX and no registry is
    needed. The first digits of an identity are completed from the cache and the registry.

    \b
    mxr ls --model $(mxr identity resnet50.onnx)
    """
    from mxr.request.model import complete_identity, find_model, is_identity

    cache = session.cache()
    if is_identity(model):
        found = complete_identity(model, cache, session.client)
    else:
        found = find_model(model, cache, None, follow_links=follow_links).identity
    print_json({"model": found}) if session.as_json else echo(found)
