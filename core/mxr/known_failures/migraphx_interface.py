"""Known failures of MIGraphX's C, C++ and Python interfaces that hide or precede the actual error."""

from __future__ import annotations

from mxr.known_failures.record import KnownFailure

MIGRAPHX_INTERFACE: tuple[KnownFailure, ...] = (
    KnownFailure(
        name="failed-to-call",
        who="migraphx",
        kind="permanent",
        level="catch-all",
        needles=(b"failed to call function",),
        pattern=r"failed to call function",
        means=(
            "The C and C++ interface of MIGraphX reports this for every error. The actual error was printed on "
            "standard error before it."
        ),
        fix=("Look for it there, or run `mxr check FILE` to see whether the file matches this GPU and this MIGraphX."),
        source="MIGraphX src/api/include/migraphx/migraphx.hpp",
    ),
    KnownFailure(
        name="no-migraphx",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"no module named 'migraphx'", b"module 'migraphx' has no attribute"),
        pattern=r"no module named 'migraphx'|module 'migraphx' has no attribute",
        means="Python does not find MIGraphX, or finds the empty package of that name from the public index.",
        fix=(
            "Run `pip uninstall migraphx`, install MIGraphX from ROCm's packages, and add /opt/rocm/lib to PYTHONPATH."
        ),
        source="observed; the package named migraphx on PyPI holds no code",
    ),
)
