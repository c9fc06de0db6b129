"""The private key of this process, read again when its file changes."""

from __future__ import annotations

import threading
from pathlib import Path

from mxr.errors import MxrError, TemporaryError
from mxr.trust.keys import SigningKey

HINT = "Name its file in signing.key_file (MXR_SIGNING_KEY_FILE); `mxr-registry key create` makes one."


class Signer:
    """Signs for one registry process. `path`: the file of its key; None: it has none.

    `recall_seconds`: how long a recall list counts that it signs.
    """

    def __init__(self, path: Path | None, recall_seconds: float = 0.0) -> None:
        self.path = path
        self.recall_seconds = recall_seconds
        self._lock = threading.Lock()
        self._key: SigningKey | None = None
        self._seen: tuple[int, int, int] | None = None

    def key(self) -> SigningKey:
        """Return the key. Raises `TemporaryError` where there is none, which says why."""
        if self.path is None:
            raise TemporaryError("This registry has no signing key, so it accepts no publication.", hint=HINT)
        try:
            with self._lock:
                status = self.path.stat()
                seen = (status.st_ino, status.st_size, status.st_mtime_ns)
                if self._key is None or seen != self._seen:
                    self._key, self._seen = SigningKey.load(self.path), seen
                return self._key
        except (OSError, MxrError) as problem:
            why = problem.message if isinstance(problem, MxrError) else f"{self.path}: {problem.strerror}."
            raise TemporaryError(
                f"The registry cannot read its signing key, so it accepts no publication: {why}", hint=HINT
            ) from None
