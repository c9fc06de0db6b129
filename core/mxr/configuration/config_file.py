"""Reads configuration files in TOML that only this user and root can write, and names what is wrong in a line."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mxr.display.text import did_you_mean
from mxr.errors import UsageError
from mxr.util.frozen import dataclass

MAX_BYTES = 1 << 20
"""Bytes of the largest configuration file. One that mxr writes or shows has less than 1 KiB."""

OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""O_NONBLOCK: opening a named pipe does not wait for a writer."""


NOWHERE = Path(os.devnull) / "mxr"
"""The cache of a user without a home folder: nobody can make this folder, not even root."""


class UntrustedFileError(Exception):
    """A configuration file that must not be used. The text says why, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of a configuration file. `within`: the dotted table in which settings are looked up."""

    path: Path
    text: str
    within: str = ""

    def table(self) -> dict[str, Any] | None:
        """Return the table of the settings, None if the file has none.

        Raises `UsageError` for invalid TOML; where `within` is not in it, the file is none of ours.
        """
        # Imported here: most hosts have no configuration file, and a fetch from the cache must start fast.
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib

        try:
            found: Any = tomllib.loads(self.text)
        except (ValueError, RecursionError) as problem:
            if self.within and not any(self._header().match(line) for line in self.text.splitlines()):
                return None
            reason = "it is nested too deeply" if isinstance(problem, RecursionError) else problem
            raise UsageError(
                f"{self.path} is not valid TOML: {reason}.", hint="Correct the file or remove it."
            ) from None
        for name in filter(None, self.within.split(".")):
            found = found.get(name) if isinstance(found, dict) else None
        if found is not None and not isinstance(found, dict):
            raise self.error("", f"{self.within} must be a table", f"Write [{self.within}].")
        return found

    def check_names(self, names: Iterable[str], known: Iterable[str]) -> None:
        """Raise `UsageError` for a name that is not known, with its line and the nearest known one."""
        known = sorted(known)
        for name in names:
            if name not in known:
                hint = f"Known settings: {', '.join(known)}."
                raise self.error(name, f"unknown setting {name[:80]!r}", f"{did_you_mean(name, known)} {hint}".strip())

    def error(self, name: str, problem: str, hint: str) -> UsageError:
        """Return the error for the setting of this name, with its line where the text shows it."""
        line = self._line(name)
        where = f"{self.path}:{line}" if line else str(self.path)
        context = {"file": str(self.path), **({"line": line} if line else {})}
        return UsageError(f"{where}: {problem}.", hint=hint, context=context)

    def _header(self) -> re.Pattern[str]:
        return re.compile(r"\s*\[\s*" + _dotted(self.within) + r"\s*[\].]")

    def _line(self, name: str) -> int | None:
        """Return the number of the first line that assigns a name or begins its table. TOML parsers do not tell it.

        For a name in a table, such as `inputs.x`, that is the line of the name, or else of the table.
        """
        lines = self.text.splitlines()
        first = 0
        if self.within:
            header = self._header()
            first = next((at for at, line in enumerate(lines) if header.match(line)), 0)
            if not name:
                return first + 1
        table, _, inner = name.partition(".")
        for spelled in filter(None, (_dotted(name), inner and _spelled(inner), _spelled(table))):
            assigned = re.compile(rf"\s*(?:\[[^\]]*)?{spelled}\s*[=.\]]")
            for at, line in enumerate(lines[first:], first + 1):
                if assigned.match(line):
                    return at
        return None


def _dotted(name: str) -> str:
    return r"\s*\.\s*".join(map(_spelled, name.split(".")))


def _spelled(name: str) -> str:
    return f"[\"']?{re.escape(name)}[\"']?"


def home_dir(environ: Mapping[str, str]) -> Path | None:
    """Return the home folder of this user, as `~` means it: by HOME, else by the user database.

    None where it is not known, or `/`, which is what containers give to users that they do not know.
    """
    found = environ.get("HOME", "")
    if not found.startswith("/"):
        import pwd

        with suppress(KeyError):
            found = pwd.getpwuid(os.geteuid()).pw_dir
    return Path(found) if found.strip("/") and found.startswith("/") else None


def user_config_dir(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of mxr's own files of this user, whether it exists or not; None without a home folder.

    Source: XDG Base Directory Specification.
    """
    base = environ.get("XDG_CONFIG_HOME") or ""
    home = home_dir(environ)
    return Path(base) / "mxr" if base.startswith("/") else home and home / ".config" / "mxr"


def user_socket_dirs(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders of the sockets of this user's registries, whether they exist or not, the preferred one first.

    Source: XDG Base Directory Specification.
    """
    runtime = Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}")
    home = home_dir(environ)
    state = environ.get("XDG_STATE_HOME") or (home and home / ".local" / "state")
    return (runtime / "mxr", *([Path(state) / "mxr" / "run"] if state else []))


def read_config(
    path: Path, within: str = "", *, follow_links: bool = False, any_owner: bool = False, private: bool = False
) -> ConfigFile | None:
    """Return the content of a file, None if there is none.

    Raises `UntrustedFileError` for what another user owns (unless `any_owner`) or can write, for what is no regular
    file, with `private` for what others can read, and, without `follow_links`, for a symbolic link; `UsageError` for a
    file of this user that is too large or no text, unless it belongs to other tools (`within`).
    """
    try:
        descriptor = os.open(path, OPEN | (0 if follow_links else os.O_NOFOLLOW))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        reason = "is a symbolic link" if problem.errno == errno.ELOOP else f"cannot be read: {problem.strerror}"
        raise UntrustedFileError(f"it {reason}") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            return None
        reason = _distrust(status, any_owner=any_owner) or (private and _exposure(status, descriptor)) or ""
        if reason:
            raise UntrustedFileError(reason)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        if within:
            return None
        raise UsageError(f"{path} is larger than {MAX_BYTES} bytes.", hint="Correct the file or remove it.")
    try:
        return ConfigFile(path, data.decode().removeprefix("\ufeff"), within)
    except UnicodeDecodeError as problem:
        if within:
            return None
        raise UsageError(
            f"{path} is not valid TOML: it is not UTF-8 at byte {problem.start}.",
            hint="Correct the file or remove it.",
        ) from None


def _distrust(status: os.stat_result, *, any_owner: bool) -> str:
    """Return why a file must not be used, nothing if only its owner, this user and root can write it."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if not any_owner and status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {status.st_uid}"
    writers = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if writers & stat.S_IWOTH or (writers and not _is_own_group(status.st_gid)):
        return f"other users can write it (mode {stat.S_IMODE(status.st_mode):04o}; fix it with `chmod go-w`)"
    return ""


def _exposure(status: os.stat_result, descriptor: int) -> str:
    """Return why a file is no place for a secret, nothing if only this user, its own group and root can read it.

    What this user cannot mend is accepted: a secret that root or the platform of containers has mounted.
    """
    readers = status.st_mode & (stat.S_IRGRP | stat.S_IROTH)
    if not readers or status.st_uid != os.geteuid() or os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        return ""
    if readers & stat.S_IROTH or not _is_own_group(status.st_gid):
        return f"other users can read it (mode {stat.S_IMODE(status.st_mode):04o}; fix it with `chmod go-r`)"
    return ""


def _is_own_group(group: int) -> bool:
    """Whether nobody but this user is in the group: many distributions give each user one, with the umask 002."""
    import grp
    import pwd

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return group == user.pw_gid and found.gr_name == user.pw_name and not set(found.gr_mem) - {user.pw_name}
