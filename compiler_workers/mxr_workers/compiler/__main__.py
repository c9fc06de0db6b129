"""One order, one ending: 0 when it was done, 1 when it was refused."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def _package() -> str:
    """The name under which the files beside this one can be imported, and no others: not this folder, nor mxr."""
    if __package__:
        return __package__
    folder = sys.path.pop(0)
    spec = importlib.util.spec_from_file_location(
        "mxr_compiler", str(Path(folder, "__init__.py")), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    sys.modules["mxr_compiler"] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return "mxr_compiler"


def main(verb: str, descriptor: str) -> int:
    """Do the order that stands on standard input."""
    package = _package()
    report: Any = importlib.import_module(f"{package}.report")
    lines = report.ChildReport(int(descriptor))
    try:
        order = json.load(sys.stdin)
        room, name = {
            "about": ("library", "about"),
            "compile": ("compiling", "compile_model"),
            "verify": ("trial", "verify"),
            "probe": ("trial", "probe"),
            "runtime": ("session", "runtime"),
            "session": ("session", "run"),
        }[verb]
        result = getattr(importlib.import_module(f"{package}.{room}"), name)(order, lines)
    except report.ChildRefusal as refused:
        sys.stderr.write(f"{refused}\n")
        lines.failed(refused.kind, refused.name, refused)
        return 1
    except Exception as error:
        traceback.print_exc()
        lines.failed(None, None, error)
        return 1
    lines.tell(result=result)
    return 0


if __name__ == "__main__":
    ended = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # All is written: what a library's tear-down does now with its threads and devices could only spoil it.
    os._exit(ended)
