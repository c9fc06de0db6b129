"""Connection settings of an S3 store: one frozen value, read once from the environment.

Credentials are not part of it: boto3 finds them through its own chain (AWS_ACCESS_KEY_ID, a profile, an instance role).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mxr.errors import UsageError

STYLES = ("path", "virtual", "auto")
TIMEOUT = 15.0
SWITCH = {"on": True, "off": False}


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Connection settings of an S3 store.

    `endpoint` is the URL at which the registry reaches the server, None for AWS. `public_endpoint` is the URL at which
    clients reach it. `style` is the addressing style: path, virtual or auto. `signed`: whether clients get signed URLs
    and download from the server directly. `timeout`: seconds without a byte after which one attempt of a request fails.
    """

    endpoint: str | None = None
    public_endpoint: str | None = None
    region: str | None = None
    ca_file: str | None = None
    style: str = "auto"
    signed: bool = True
    timeout: float = TIMEOUT

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> S3Settings:
        """Read MXR_S3_ENDPOINT, _PUBLIC_ENDPOINT, _REGION, _CA_FILE, _STYLE, _SIGNED, _TIMEOUT. Raises `UsageError`."""
        endpoint = _url(environ, "MXR_S3_ENDPOINT")
        ca_file = environ.get("MXR_S3_CA_FILE") or None
        if ca_file is not None and not Path(ca_file).is_file():
            raise UsageError(f"MXR_S3_CA_FILE: no such file: {ca_file}.", hint="Give a file with PEM certificates.")
        # Few servers other than AWS have a DNS name for each bucket.
        default_style = "auto" if endpoint is None else "path"
        return cls(
            endpoint=endpoint,
            public_endpoint=_url(environ, "MXR_S3_PUBLIC_ENDPOINT"),
            region=environ.get("MXR_S3_REGION") or None,
            ca_file=ca_file,
            style=_choice(environ, "MXR_S3_STYLE", STYLES, default_style),
            signed=SWITCH[_choice(environ, "MXR_S3_SIGNED", tuple(SWITCH), "on")],
            timeout=_seconds(environ, "MXR_S3_TIMEOUT", TIMEOUT),
        )

    def signs_for(self, *, local: bool) -> bool:
        """Whether a client gets signed URLs, which it must be able to reach. `local`: it runs on this machine."""
        if not self.signed or self.public_endpoint is not None or self.endpoint is None:
            return self.signed
        return local or not is_loopback(urlsplit(self.endpoint).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether a host name or an IP address refers to the local machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _url(environ: Mapping[str, str], name: str) -> str | None:
    text = (environ.get(name) or "").rstrip("/")
    parts = urlsplit(text)
    if "@" in parts.netloc:
        # Not quoted: the part before it may be a password.
        raise UsageError(
            f"{name} contains a user name or a password.",
            hint="Remove it: the credentials of S3 are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    if text and not (parts.scheme in ("http", "https") and parts.hostname and not parts.query):
        raise UsageError(f"{name}: {text!r} is not a server URL.", hint="Write it as https://s3.example.com:9000.")
    return text or None


def _choice(environ: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    value = environ.get(name) or default
    if value not in choices:
        raise UsageError(
            f"{name}: {value!r} is not one of {', '.join(choices)}.",
            hint=f"Correct it, or unset it to use the default, {default}.",
        )
    return value


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(environ.get(name) or default)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise UsageError(
            f"{name}: expected seconds, more than 0 and at most 3600.",
            hint=f"Correct it, or unset it to use the default, {default:g}.",
        )
    return value
