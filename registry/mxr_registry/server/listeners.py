"""What a registry listens on: a port, a Unix socket, what a service manager passes on, the socket of its own user.

A service manager such as systemd gives sockets that stay open while the registry restarts, so that nobody else can take
their port or path, and it hears when the registry serves. Sources: sd_listen_fds(3), sd_notify(3). The certificate of a
registry that terminates TLS itself is loaded again on SIGHUP.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

from mxr.configuration.config_file import UntrustedFileError, user_socket_dirs
from mxr.errors import TemporaryError, UsageError
from mxr.protocol import local_socket
from mxr_registry.config.settings import RegistrySettings


class ServerCertificate:
    """A certificate with its chain, and its key, both in PEM form. `context` has what was loaded last."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raise `UsageError` for files that cannot be used."""
        self._certificate, self._key = certificate, key
        self._seen = self._state()
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

    def reload_changed(self) -> None:
        """Load the files again where they changed: in a container, nobody sends SIGHUP after a renewal."""
        found = self._state()
        if found != self._seen and None not in found:
            self._seen = found
            self.reload()

    def _state(self) -> tuple[object, ...]:
        states: list[object] = []
        for path in (self._certificate, self._key):
            try:
                status = path.stat()
                states.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
            except OSError:
                states.append(None)
        return tuple(states)

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


FIRST = 3
"""The descriptor of the first socket."""


def inherited_sockets(environ: Mapping[str, str]) -> list[socket.socket]:
    """Return the sockets that the service manager listens on for this process; nothing where it has none."""
    count = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID") != str(os.getpid()) or not (count.isascii() and count.isdigit()):
        return []
    found = [socket.socket(fileno=FIRST + number) for number in range(int(count))]
    for each in found:
        each.set_inheritable(False)
    return found


def tell_ready(environ: Mapping[str, str]) -> None:
    """Send `READY=1` to the socket that a unit with `Type=notify` names; without one, do nothing."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        # An @ stands for the zero byte of the abstract namespace.
        connection.sendto(b"READY=1", address.replace("@", "\0", 1) if address[0] == "@" else address)


DEFAULT_PORT = 8765

log = logging.getLogger("mxr_registry")


def open_listeners(settings: RegistrySettings, environ: Mapping[str, str]) -> list[socket.socket]:
    """Return the sockets to listen on: those of the service manager, or else those that the settings name.

    Raises `UsageError`, and `TemporaryError` for what another program has.
    """
    found = inherited_sockets(environ)
    if found:
        return found
    if settings.unix is not None:
        found.append(_listen_unix(settings.unix))
    if settings.unix is None or settings.port is not None:
        found.append(_listen(settings.host, DEFAULT_PORT if settings.port is None else settings.port))
    return found


def address_of(listener: socket.socket, scheme: str, unix: Path | None) -> str:
    """Return the URL of a listener, as a client writes it. `unix`: the path of a Unix socket that was made here."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{unix or listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Whether only programs of this host can connect, by TCP."""
    if listener.family == socket.AF_UNIX:
        return False
    return ipaddress.ip_address(str(listener.getsockname()[0]).partition("%")[0]).is_loopback


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as problem:
        hint = "Give a host name or an IP address of this machine."
        raise UsageError(f"--host {host}: {problem.strerror}.", hint=hint) from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as problem:
        listener.close()
        if problem.errno == errno.EADDRINUSE:
            hint = "Stop the program that listens there, or choose another --port (0 chooses a free one)."
            raise TemporaryError(f"Port {port} of {host} is in use.", hint=hint) from None
        raise UsageError(
            f"Cannot listen on {host}:{port}: {problem.strerror}.", hint="Choose another --host or --port."
        ) from None
    return listener


def _listen_unix(path: Path) -> socket.socket:
    """Listen on a socket that every user of this host may connect to."""
    hint = "Choose a folder that belongs to the user of the registry and that others cannot write, such as /run/mxr."
    try:
        return _bind(path, 0o666)
    except UntrustedFileError as reason:
        raise UsageError(f"--unix {path}: its folder is not used: {reason}.", hint=hint) from None
    except OSError as problem:
        raise UsageError(f"--unix {path}: {problem.strerror or problem}.", hint=hint) from None


def _bind(path: Path, mode: int) -> socket.socket:
    """Listen on a Unix socket in a folder of this user. What a registry has left behind there is replaced.

    Raises `OSError`, `UntrustedFileError`, and `TemporaryError` if another registry listens there.
    """
    with local_socket.opened(path.parent) as folder:
        place = Path(folder, path.name)
        with contextlib.suppress(*local_socket.ABSENT), socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(str(place))
            raise TemporaryError(f"Another registry listens on {path}.", hint="Stop it, or choose another path.")
        listener = socket.socket(socket.AF_UNIX)
        try:
            if place.is_socket():
                place.unlink()
            listener.bind(str(place))
            place.chmod(mode)
        except BaseException:
            listener.close()
            raise
    return listener


@contextlib.contextmanager
def own_socket(listeners: list[socket.socket], environ: Mapping[str, str]) -> Iterator[socket.socket | None]:
    """Listen on the socket of this user, for the port of a listener on loopback; remove it afterwards.

    None without such a port, and, with a warning, where no folder can be used.
    """
    ports = [listener.getsockname()[1] for listener in listeners if is_loopback(listener)]
    if not ports:
        yield None
        return
    reasons = []
    for folder in user_socket_dirs(environ):
        path = folder / local_socket.name_of(ports[0])
        try:
            _make_folder(folder)
            listener = _bind(path, 0o600)
        except (OSError, UntrustedFileError, TemporaryError) as problem:
            reasons.append(f"{folder}: {getattr(problem, 'strerror', None) or problem}")
            continue
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
        return
    log.warning(
        "mxr and mxr-worker of this user need a token (`mxr-registry token create`), because no socket for them can be "
        "made (%s)",
        "; ".join(reasons),
    )
    yield None


def _make_folder(folder: Path) -> None:
    """Make a folder of this user's sockets, within a folder of this user. Raises `OSError`, `UntrustedFileError`."""
    if folder.parent.name != "mxr":
        # $XDG_RUNTIME_DIR is made by the system, or not at all.
        with local_socket.opened(folder.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
    else:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
