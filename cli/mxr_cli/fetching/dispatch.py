"""Selects how `mxr fetch` gets what a call asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxr_cli.options import Session

    from .fetch_options import FetchOptions


def fetch(session: Session, options: FetchOptions) -> dict[str, Any]:
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
    if options.batches:
        from .variant_set import fetch_set

        return fetch_set(session, options)
    from .program import fetch_program

    return fetch_program(session, options)
