"""Run one request from standard input. Exit code: 0 on success, 1 when it was refused or failed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

HANDLERS = {
    "describe": ("migraphx_module", "describe"),
    "compile": ("compile", "compile_model"),
    "verify": ("verify", "verify"),
    "probe": ("verify", "probe"),
    "walls": ("walls", "probe"),
    "runtime": ("ort_session", "runtime"),
    "session": ("ort_session", "run"),
}
"""The module and function of each verb."""


def _package() -> str:
    """Make the sibling files importable as one package, without putting this folder or mxr on the import path."""
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
    """Run the request on standard input; return the exit code."""
    package = _package()
    reporting: Any = importlib.import_module(f"{package}.report")
    report = reporting.ChildReport(int(descriptor))
    try:
        request = json.load(sys.stdin)
        module, function = HANDLERS[verb]
        result = getattr(importlib.import_module(f"{package}.{module}"), function)(request, report)
    except reporting.ChildRefusal as refusal:
        sys.stderr.write(f"{refusal}\n")
        report.failed(refusal.kind, refusal.name, refusal)
        return 1
    except Exception as error:
        traceback.print_exc()
        report.failed(None, None, error)
        return 1
    else:
        report.write(result=result)
        return 0
    finally:
        report.close()


if __name__ == "__main__":
    exit_code = main(*sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Skip interpreter shutdown: the result is written, and a library that fails while it tears down its threads and
    # devices would turn a success into a failure.
    os._exit(exit_code)
