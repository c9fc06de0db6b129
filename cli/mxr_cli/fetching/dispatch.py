"""Selects how `mxr fetch` gets what a call asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .fetch_options import FetchOptions, with_defaults

if TYPE_CHECKING:
    from mxr_cli.options import Session


def dispatch_fetch(session: Session, options: FetchOptions) -> dict[str, Any]:
    """Fetch the models of a genai_config, the entries of a lock, a set of batch sizes, or one program.

    Returns the JSON document of the command.
    """
    if options.genai_config is not None:
        from .genai import fetch_genai_models

        return fetch_genai_models(session, options)
    if options.locked is not None:
        from .locked import fetch_locked

        return fetch_locked(session, options)
    options = with_defaults(session, options)
    if options.batches:
        from .variant_set import fetch_set

        return fetch_set(session, options)
    from .program import fetch_program

    return fetch_program(session, options)
