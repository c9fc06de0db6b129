"""The key with which a worker signs what it built: made by an operator, and enrolled at the registry by one.

Without a key, a worker signs nothing. Its children cannot read the key: it is in the spool, or is protected like it.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from mxr.artifact.manifest import artifact_id
from mxr.client.registry import Client
from mxr.client.worker import HeldLease
from mxr.errors import UsageError
from mxr.protocol.artifacts import Publish
from mxr.trust.envelope import Envelope
from mxr.trust.keys import SigningKey
from mxr.trust.rules import ACTIVE, OF_WORKER
from mxr.trust.statement import BUILT, PAYLOAD_TYPE, statement
from mxr.util.codec import time_text

_log = logging.getLogger("mxr-worker")


def find_key(path: Path, *, named: bool) -> SigningKey | None:
    """Return the key in a file; None if there is none. `named`: a setting names the file, so that it must be there.

    Raises `UsageError`, `NotAllowedError` and `DamagedError`.
    """
    if path.is_file():
        return SigningKey.load(path)
    if named:
        raise UsageError(f"There is no key {path}.", hint="Make it with `mxr-worker key`, or unset worker.key_file.")
    return None


def sign_built(key: SigningKey, client: Client, lease: HeldLease, worker: str, artifact: Publish) -> Envelope | None:
    """Return what the worker signs of a program that it built; None where its key is not enrolled (any more).

    Raises `UnreachableError` and `TemporaryError`.
    """
    known = client.keys()
    if not any(each.id == key.public.id and (each.role, each.state) == (OF_WORKER, ACTIVE) for each in known.items):
        _log.warning("job %s: not signed: the key %s is not enrolled", lease.job[:12], key.public.id[:12])
        return None
    predicate = {
        "registry": known.registry,
        "artifact": artifact_id(artifact.key.digest, artifact.manifest.files),
        "digest": artifact.key.digest,
        "key": artifact.key.to_json(),
        "attributes": artifact.attributes.to_json(),
        "job": lease.job,
        "worker": worker,
        "provenance": dict(artifact.provenance),
        "built_at": time_text(time.time()),
    }
    files = {file.name: file.sha256 for file in artifact.manifest.files}
    return Envelope.sign(PAYLOAD_TYPE, statement(BUILT, files, predicate), key)
