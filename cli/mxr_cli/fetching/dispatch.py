"""Selects how `mxr fetch` gets what a call asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .fetch_options import FetchOptions, with_defaults

if TYPE_CHECKING:
    from mxr_cli.options import Session


def dispatch_fetch(session: Session, options: FetchOptions) -> dict[str, Any]:
    """Fetch the models of a genai_config, the entries of a lock, a set of batch sizes, or one program.

    With an output, it does without a cache that cannot be used. Returns the JSON document of the command.
    """
    with session.cache().staged_beside(options.output):
        return _dispatch(session, options)


def _dispatch(session: Session, options: FetchOptions) -> dict[str, Any]:
    if options.genai_config is not None:
        from .genai import fetch_genai_models

        return fetch_genai_models(session, options)
    if options.locked is not None:
        from .locked import fetch_locked

        return fetch_locked(session, options)
    options = with_defaults(session, options)
    if options.batches:
        from .programs import fetch_set

        return fetch_set(session, options)
    from .programs import fetch_program

    return fetch_program(session, options)
