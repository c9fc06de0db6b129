"""The certificate of a registry that terminates TLS itself, loaded again on SIGHUP."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from mxr.errors import UsageError

log = logging.getLogger("mxr_registry")


class ServerCertificate:
    """A certificate with its chain, and its key, both in PEM form. `context` has what was loaded last."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raise `UsageError` for files that cannot be used."""
        self._certificate, self._key = certificate, key
        self.context = self._load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))

    def reload(self) -> None:
        """Load the files again, for connections from now on. What cannot be used is logged, and changes nothing."""
        try:
            # Loaded for a trial first: a certificate without its key would end every new connection.
            self._load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
            self._load(self.context)
        except UsageError as problem:
            log.error("the certificate stays as it is: %s %s", problem.message, problem.hint)
        else:
            log.warning("loaded the certificate %s", self._certificate)

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        try:
            # Without a password, OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "reason", None) or getattr(problem, "strerror", None) or problem
            raise UsageError(
                f"The certificate {self._certificate} and the key {self._key} cannot be used: {reason}.",
                hint="Give the certificate with its chain, and its key without a password, as files in PEM form.",
            ) from None
        return context
