"""Workers that tests play: their secrets, and the leases of their claims."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Any

CREDENTIALS: dict[str, str] = {}
"""The credentials of registered workers, by their ids."""


def secret_of(text: str) -> str:
    """A secret that is always the same for a text."""
    return base64.urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=")


def registration_of(name: str, can: Any) -> dict[str, Any]:
    """What registers a worker."""
    return {"name": name, "can": can, "credential": secret_of(name)}


def registered(send: Callable[..., Any], name: str, can: Any) -> str:
    """Register a worker; its id."""
    id = str(send("POST", "/v1/workers", registration_of(name, can))["id"])
    CREDENTIALS[id] = secret_of(name)
    return id


def claim_of(worker: str, **more: Any) -> dict[str, Any]:
    """The claim of a worker, given by its id, with a secret of its own."""
    return {"credential": CREDENTIALS.get(worker, secret_of(worker)), "lease": secrets.token_urlsafe(32), **more}


def lease_of(send: Callable[..., Any], worker: str, **more: Any) -> Any:
    """Claim a job: the lease with its `secret`, or None."""
    body = claim_of(worker, **more)
    lease = send("POST", "/v1/jobs/claim", body)["lease"]
    return lease and {**lease, "secret": body["lease"]}


def sign_off(send: Callable[..., Any], worker: str) -> Any:
    """Sign a worker off, given by its id."""
    return send("POST", "/v1/workers/sign-off", {"credential": CREDENTIALS.get(worker, secret_of(worker))})
