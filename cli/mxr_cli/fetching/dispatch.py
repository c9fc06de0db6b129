"""Selects how `mxr fetch` gets what a call asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxr_cli.options import Session

    from .fetch_options import FetchOptions


def dispatch_fetch(session: Session, options: FetchOptions) -> dict[str, Any]:
    """Fetch the models of a genai_config, the entries of a lock, a set of batch sizes, or one program.

    Returns the JSON document of the command.
    """
    if options.genai_config is not None:
        from .genai import fetch_genai_models

        return fetch_genai_models(session, options)
    return fetch_model(session, options)


def fetch_model(session: Session, options: FetchOptions) -> dict[str, Any]:
    """Fetch what one model or a lock asks for. Returns the JSON document."""
    if options.locked is not None:
        from .locked import fetch_locked

        return fetch_locked(session, options)
    options = with_defaults(session, options)
    if options.batches:
        from .variant_set import fetch_set

        return fetch_set(session, options)
    from .program import fetch_program

    return fetch_program(session, options)


def with_defaults(session: Session, options: FetchOptions) -> FetchOptions:
    """The options with the defaults of the settings and of the project, of which several batch sizes make a set."""
    model = options.model
    assert model is not None
    defaults = session.defaults(model)
    options = replace(options, defaults=defaults)
    if len(defaults.batch) < 2 or options.batches or options.request.batch is not None:
        return options
    from mxr.request import model as models

    request, connect = options.request, session.connect(offline=options.offline)
    subject = models.find_model(model, session.cache(), connect, follow_links=request.follow_links)
    return replace(options, batches=session.default_batches(request, defaults, subject))
