"""Connection settings of an S3 store.

Credentials are not part of it: boto3 finds them through its own chain (AWS_ACCESS_KEY_ID, a profile, an instance role).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mxr.configuration.reading import HiddenValueError
from mxr.configuration.schema import SECONDS, setting

STYLES = ("path", "virtual", "auto")
TIMEOUT = 5.0


def check_server_url(text: str) -> str:
    """Return the URL of a server. Raises `ValueError` with what is expected."""
    url = text.rstrip("/")
    if "@" in url:
        # Not quoted: the part before it may be a password.
        raise HiddenValueError(
            "it contains a user name or a password; the credentials of S3 are AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
    try:
        parts = urlsplit(url)
        named = bool(parts.scheme in ("http", "https") and parts.hostname and not parts.query and parts.port != 0)
    except ValueError:
        named = False
    if not named:
        raise ValueError("the URL of a server, such as https://s3.example.com:9000")
    return url


def check_file(path: Path) -> Path:
    """Return the path of a file that exists. Raises `ValueError`."""
    if not path.is_file():
        raise ValueError("a file with PEM certificates that exists")
    return path


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The server of an S3 store. Credentials are those of AWS: variables, a profile, an instance role."""

    endpoint: str | None = setting(
        None,
        "The server as the registry reaches it.",
        check=check_server_url,
        example='"https://s3.example.com:9000"',
        absent="AWS",
    )
    public_endpoint: str | None = setting(
        None,
        "The server as clients reach it, if that is another name.",
        check=check_server_url,
        example='"https://s3.example.com"',
        absent="the endpoint",
    )
    region: str | None = setting(
        None, "The region.", example='"eu-central-1"', absent="that of the AWS configuration, else us-east-1"
    )
    ca_file: Path | None = setting(
        None,
        "PEM certificates to verify the server's certificate.",
        check=check_file,
        example='"/etc/ssl/s3.pem"',
        absent="those of the system",
    )
    style: str | None = setting(
        None,
        "The place of the bucket name in a URL; `virtual` is in the host name.",
        choices=STYLES,
        example='"path"',
        # Few servers other than AWS have a DNS name for each bucket.
        absent="`path` with an endpoint, `auto` for AWS",
    )
    signed: bool = setting(
        True, "Clients get signed URLs, and download from the server; without, all bytes go through the registry."
    )
    timeout: float = setting(
        TIMEOUT,
        "Time without a byte after which one of three attempts of a request ends; that of an upload, which has one, is "
        "three times as long.",
        unit=SECONDS,
        least=0.05,
        most=3600,
    )

    @property
    def addressing(self) -> str:
        """The addressing style: path, virtual or auto."""
        return self.style or ("auto" if self.endpoint is None else "path")

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
