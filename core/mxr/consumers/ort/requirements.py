"""What a program must be for ONNX Runtime's MIGraphX provider to load it rightly."""

from __future__ import annotations

from mxr.artifact.key import Key
from mxr.consumers.layout import refuse_dynamic
from mxr.errors import UsageError
from mxr.facts import stated

WHO = "ONNX Runtime"

FREEZE = "Freeze it first, one file per batch: mxr freeze MODEL --batch 1,4,8 -o FOLDER. Then fetch for these files."
"""What to do with a model that has open dims, for which the provider has one file name."""


def check_key(key: Key) -> None:
    """Raise `UsageError` for programs of the ref target, with offload_copy or fast_math, or with dynamic dims."""
    if key.kind != "gpu":
        raise UsageError(f"{WHO}'s provider supports only GPU programs.", hint=f"Omit {stated('kind', 'ref')}.")
    for name, flag in (("offload_copy", key.offload_copy), ("fast_math", key.fast_math)):
        if flag:
            raise UsageError(
                f"{WHO}'s provider compiles with {name} off, and would load a program with {name} on all the same.",
                hint=f"Omit {stated(name, True)}: {stated('consumer', 'ort')} implies {stated(name, False)}.",
            )
    refuse_dynamic(key, WHO)
