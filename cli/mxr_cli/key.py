"""`mxr key`: the key of a request, its digest, the model hash."""

from __future__ import annotations

import click

from mxr.request.builder import Options

from .options import Session, common, matching, request
from .output import document, note, say


@click.command(short_help="Show the key of a request, its digest and the model hash.")
@click.argument("model", metavar="MODEL")
@request
@matching
@common
def key(session: Session, options: Options, model: str) -> None:
    """Show the key of a request for MODEL, its digest, and the model hash. Nothing is fetched."""
    from mxr.api import prepare

    cache = session.cache()
    subject, asked = prepare(options, model, cache, session.client, session.host(options))
    found = asked.request.key
    if session.as_json:
        document({"model": subject.model, "digest": found.digest, **asked.request.to_json()})
        return
    for line in asked.notes:
        note(f"mxr: {line}")
    say(f"model   {subject.model}")
    say(f"digest  {found.digest}")
    say(f"key     {found.canonical}")
