"""Where an S3 store is and how it is spoken to: one frozen value, read once from the environment.

Who asks is known to boto3 by its usual chain (AWS_ACCESS_KEY_ID, a profile, the role of a machine), never by mxr.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mxr.errors import Usage

STYLES = ("path", "virtual", "auto")
TIMEOUT = 15.0
SWITCH = {"on": True, "off": False}


@dataclass(frozen=True, slots=True)
class S3Place:
    """`endpoint`: as the registry reaches the server, None for AWS itself. `public_endpoint`: as clients reach it.

    `style`: where a URL names the bucket. `signed`: whether clients get URLs to fetch from the server by themselves.
    `timeout`: seconds without a byte after which one try of a request is given up.
    """

    endpoint: str | None = None
    public_endpoint: str | None = None
    region: str | None = None
    ca_file: str | None = None
    style: str = "auto"
    signed: bool = True
    timeout: float = TIMEOUT

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> S3Place:
        """Reads MXR_S3_ENDPOINT, _PUBLIC_ENDPOINT, _REGION, _CA_FILE, _STYLE, _SIGNED, _TIMEOUT. Raises `Usage`."""
        endpoint = _url(environ, "MXR_S3_ENDPOINT")
        ca_file = environ.get("MXR_S3_CA_FILE") or None
        if ca_file is not None and not Path(ca_file).is_file():
            raise Usage(f"MXR_S3_CA_FILE: there is no file {ca_file}.", hint="Name a file of PEM certificates.")
        # Few servers but AWS have a name in the DNS for each bucket.
        usual = "auto" if endpoint is None else "path"
        return cls(
            endpoint=endpoint,
            public_endpoint=_url(environ, "MXR_S3_PUBLIC_ENDPOINT"),
            region=environ.get("MXR_S3_REGION") or None,
            ca_file=ca_file,
            style=_choice(environ, "MXR_S3_STYLE", STYLES, usual),
            signed=SWITCH[_choice(environ, "MXR_S3_SIGNED", tuple(SWITCH), "on")],
            timeout=_seconds(environ, "MXR_S3_TIMEOUT", TIMEOUT),
        )

    def signs_for(self, near: bool) -> bool:
        """Whether a client can probably reach a signed URL; `near`: it is on the registry's own machine."""
        if not self.signed or self.public_endpoint is not None or self.endpoint is None:
            return self.signed
        return near or not loopback(urlsplit(self.endpoint).hostname or "")


def loopback(host: str) -> bool:
    """Whether a name or an address means the machine that it is said on."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _url(environ: Mapping[str, str], name: str) -> str | None:
    text = (environ.get(name) or "").rstrip("/")
    parts = urlsplit(text)
    if text and not (parts.scheme in ("http", "https") and parts.hostname and not parts.query):
        raise Usage(f"{name}: {text!r} is not the URL of a server.", hint="Write it as https://s3.example.com:9000.")
    return text or None


def _choice(environ: Mapping[str, str], name: str, known: tuple[str, ...], usual: str) -> str:
    found = environ.get(name) or usual
    if found not in known:
        raise Usage(f"{name}: {found!r} is none of {', '.join(known)}.", hint=f"Leave it out for {usual}.")
    return found


def _seconds(environ: Mapping[str, str], name: str, usual: float) -> float:
    try:
        found = float(environ.get(name) or usual)
    except ValueError:
        found = 0.0
    if not 0 < found <= 3600:
        raise Usage(f"{name} is not a number of seconds.", hint=f"Leave it out for {usual:g}.")
    return found
