"""Which proxy a request takes, by the variables that curl, pip and others read.

HTTPS_PROXY, HTTP_PROXY and ALL_PROXY name a proxy; in small letters, too, which come first. NO_PROXY exempts hosts:
names with all below them, addresses, networks (10.0.0.0/8), each with or without a port; `*` exempts all. This host is
never reached through a proxy. Source: curl(1), "Environment"; Python, urllib.request.getproxies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from mxr.display.text import redact_url
from mxr.errors import UsageError
from mxr.util.frozen import dataclass

if TYPE_CHECKING:
    from urllib.parse import SplitResult

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, and the variable that names it. Its URL may hold a password: its text and its repr do not."""

    url: str = field(repr=False)
    variable: str

    def __str__(self) -> str:
        """Return how errors name it, without an article."""
        return f"proxy {self.address} ({self.variable})"

    @property
    def account(self) -> str | None:
        """User and password, as `user:password`."""
        from urllib.parse import unquote, urlsplit

        account, at, _ = urlsplit(self.url).netloc.rpartition("@")
        return unquote(account) if at else None

    @property
    def address(self) -> str:
        """The URL without user and password."""
        return redact_url(self.url)


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies of an environment. `exempt`: the entries of NO_PROXY, `exempt_by`: the name of that variable."""

    named: Mapping[str, Proxy] = field(default_factory=dict)
    exempt: tuple[str, ...] = ()
    exempt_by: str = "NO_PROXY"

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Proxies:
        """Return the proxies that an environment names. One that cannot be used is an error where it is chosen."""
        named = {}
        for scheme in ("http", "https", "all"):
            for variable in (f"{scheme}_proxy", f"{scheme}_proxy".upper()):
                text = environ.get(variable, "").strip()
                if text and scheme not in named:
                    named[scheme] = Proxy(text if "://" in text else f"http://{text}", variable)
        variable = next((name for name in ("no_proxy", "NO_PROXY") if environ.get(name)), "NO_PROXY")
        words = environ.get(variable, "").replace(",", " ").lower().split()
        return cls(named, tuple(words), variable)

    def choose(self, url: str) -> tuple[Proxy | None, str]:
        """Return the proxy for a URL, and the variable that decides; an empty one where none does.

        Raises `UsageError` for a proxy that mxr cannot use.
        """
        # Not with the module: a fetch from the cache needs neither.
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            return None, ""
        proxy = self.named.get(parts.scheme) or self.named.get("all")
        if proxy is None or parts.scheme not in PORTS or is_loopback(parts.hostname or ""):
            return None, ""
        if any(_matches(entry, parts) for entry in self.exempt):
            return None, self.exempt_by
        try:
            there = urlsplit(proxy.url)
            usable = there.scheme in PORTS and bool(there.hostname) and there.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise UsageError(
                f"{proxy.variable} names no proxy that mxr can use.",
                hint=f"Write it as http://HOST:PORT or https://HOST:PORT, or exempt the registry: "
                f"{self.exempt_by}={parts.hostname}.",
            )
        return proxy, proxy.variable


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this host."""
    import ipaddress

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _matches(entry: str, parts: SplitResult) -> bool:
    """Whether an entry of NO_PROXY exempts the host of a URL."""
    import ipaddress

    host = (parts.hostname or "").rstrip(".")
    if entry == "*":
        return True
    try:
        # A network, or an address without brackets.
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except (ValueError, TypeError):
        pass
    name, colon, port = entry.rpartition(":")
    if colon and port.isdigit() and (":" not in name or name.startswith("[")):
        if port != str(parts.port or PORTS[parts.scheme]):
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*").strip(".")
    return bool(entry) and (host == entry or host.endswith(f".{entry}"))
