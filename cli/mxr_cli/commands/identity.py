"""`mxr identity`: the identity of a model."""

from __future__ import annotations

import click

from mxr_cli.options import FOLLOW_LINKS, Session, common
from mxr_cli.output import echo, print_json


@click.command
@click.argument("model", metavar="MODEL")
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
