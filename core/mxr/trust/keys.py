"""Ed25519 keys, by the package `cryptography`, which only who signs or verifies needs (the extra `trust`).

A public key is known by its id: the sha256 of its DER form (SubjectPublicKeyInfo), in hex. Source: RFC 8032, RFC 8410.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mxr.errors import DamagedError, NotAllowedError, UsageError, WouldOverwriteError, missing_package
from mxr.util import disk

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DER_PREFIX = bytes.fromhex("302a300506032b6570032100")
"""What stands before the 32 bytes of an Ed25519 key in its DER form. Source: RFC 8410, section 4."""

RAW = 32
BEGIN, END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
MAX_KEY_FILE = 4096


class PublicKey:
    """A public key. Raises `UsageError` for a text that is none."""

    def __init__(self, pem: str) -> None:
        words = pem.split("\n")
        try:
            if words[0].strip() != BEGIN or END not in pem:
                raise ValueError
            der = base64.b64decode("".join(words[1:]).partition("-")[0].strip(), validate=True)
            if len(der) != len(DER_PREFIX) + RAW or not der.startswith(DER_PREFIX):
                raise ValueError
        except (ValueError, binascii.Error):
            raise UsageError("This is not an Ed25519 public key in PEM form.") from None
        self.der = der

    @cached_property
    def id(self) -> str:
        """Its id, by which people compare it, too."""
        return sha256(self.der).hexdigest()

    @property
    def pem(self) -> str:
        """Its PEM form."""
        return f"{BEGIN}\n{base64.b64encode(self.der).decode()}\n{END}\n"

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether this key signed `data`. Raises `UsageError` where the package is missing."""
        try:
            from cryptography.exceptions import InvalidSignature
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        except ModuleNotFoundError as problem:
            raise _missing(problem) from None
        try:
            Ed25519PublicKey.from_public_bytes(self.der[len(DER_PREFIX) :]).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True


class SigningKey:
    """A private key. Its repr tells the id only."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        self._private = private
        form = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self.public = PublicKey(private.public_key().public_bytes(*form).decode())

    def __repr__(self) -> str:
        return f"<SigningKey {self.public.id[:12]}>"

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`."""
        return self._private.sign(data)

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """Read a private key (PEM, PKCS #8, without a password).

        Raises `NotAllowedError` for a file that others can write, `DamagedError` for one that is no such key, or a disk
        fault.
        """
        with disk.faults(path, "read"), path.open("rb") as file:
            mode, data = os.fstat(file.fileno()).st_mode, file.read(MAX_KEY_FILE)
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NotAllowedError(f"Other users can write {path}.", hint=f"Run `chmod 600 {path}`, and check the key.")
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ModuleNotFoundError as problem:
            raise _missing(problem) from None
        try:
            found = load_pem_private_key(data, password=None)
        except (ValueError, TypeError):
            found = None
        if not isinstance(found, Ed25519PrivateKey):
            # Never with the content.
            raise DamagedError(
                f"{path} is not an Ed25519 private key in PEM form.", hint="Make one: `mxr-registry key create`."
            )
        return cls(found)

    @classmethod
    def create(cls, path: Path) -> SigningKey:
        """Make a private key and write it to a new file that only this user can read. Raises `WouldOverwriteError`."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        private = Ed25519PrivateKey.generate()
        data = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with disk.faults(path):
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            except FileExistsError:
                hint = "A key is never replaced: give another path."
                raise WouldOverwriteError(f"{path} exists.", hint=hint) from None
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
        return cls(private)


def _missing(problem: ModuleNotFoundError) -> Exception:
    return missing_package("This command", problem, "trust") or problem
