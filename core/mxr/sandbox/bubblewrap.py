"""Namespaces around a child: the command of bubblewrap that shows it its own files, devices and processes only.

The child has a `/proc` and an empty network of its own, and a root that holds what its policy allows and cannot be
written to. Inside, `walls` closes what it closes elsewhere. Source: bubblewrap 0.8, bwrap(1).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path, PurePath

from . import walls
from .policy import SandboxPolicy

NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts")
READ_ONLY = ("/proc/sys", "/proc/sysrq-trigger")
"""Where a worker of root could change the kernel without any capability: the files belong to root."""
BECOME = "import sys; sys.path.insert(0, sys.argv[1]); import walls; walls.become(sys.argv[2:])"
"""A program that is compiled already starts faster than a script."""
OPTIONS = (("read", "--ro-bind-try"), ("devices", "--dev-bind-try"), ("write", "--bind-try"))


def command_before(policy: SandboxPolicy, folder: str) -> list[str]:
    """Return the words before the command of a child of this policy that starts in `folder`."""
    # Without the packages of this interpreter, of which the standard library is enough.
    python, package = os.path.realpath(sys.executable), str(Path(walls.__file__).parent)
    own = policy.more(read=(sys.base_prefix, python, package))
    words = [policy.bubblewrap, *NAMESPACES, "--die-with-parent", "--cap-drop", "ALL", "--proc", "/proc"]
    for path in READ_ONLY:
        words += ["--ro-bind-try", path, path]
    for name, option in OPTIONS:
        words += [word for path in _roots(getattr(own, name)) for word in (option, path, path)]
    named = [word for name, _ in OPTIONS for path in getattr(own, name) for word in (name, path)]
    closing = [python, "-I", "-S", "-c", BECOME, package, str(own.file_size), *named, "--"]
    return [*words, "--remount-ro", "/", "--chdir", folder, "--", *closing]


def _roots(paths: Iterable[str]) -> list[str]:
    """These paths, without those below another one and those of `/proc`. What links reach is known by both names."""
    found = list[str]()
    names = [each for path in paths for each in (os.path.normpath(path), os.path.realpath(path))]
    for path in sorted(set(names)):
        if not any(PurePath(path).is_relative_to(root) for root in (*found, "/proc")):
            found.append(path)
    return found
