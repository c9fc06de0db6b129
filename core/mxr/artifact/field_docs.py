"""The fields that several messages have, described once."""

from __future__ import annotations

import re
from typing import Any

from mxr.facts import ALLOWANCES, BY_NAME
from mxr.util.doc import Doc

from . import limits, target

SHA = "7b5cd4daa4ba0a12de4ecf60ef402451c363b0ee1d146f0d0cf5a7dc1ec27455"
"""An example of a sha256."""

SHA256 = re.compile(r"[0-9a-f]{64}")
ID = "^[0-9a-f]{32}$"
"""The form of the id of a job or a worker."""

_VERSION = r"^[0-9]{1,6}\.[0-9]{1,6}$"
_PATCH = r"^[0-9]{1,6}\.[0-9]{1,6}\.[0-9A-Za-z.+~-]{1,60}$"
_PRECISIONS = "|".join(target.PRECISIONS)
_COUNT: dict[str, Any] = {"minimum": 1, "maximum": 65_536}

ARCH = Doc("The GPU architecture.", examples=["gfx942"])
VENDOR = Doc("The vendor of the GPU.", enum=target.VENDORS)
KIND = Doc("`gpu`, or `ref` for the reference target, which runs on any CPU.", enum=target.KINDS)
MIGRAPHX = Doc("The version of MIGraphX, MAJOR.MINOR.", pattern=_VERSION, examples=["2.15"])
ROCM = Doc("The version of ROCm (or DTK), MAJOR.MINOR.", pattern=_VERSION, examples=["7.2"])
PRECISION = Doc(
    "`fp32`, or reduced precisions joined by `+` in the order applied.",
    pattern=rf"^(fp32|({_PRECISIONS})(\+({_PRECISIONS}))*)$",
    examples=["fp16"],
)
ENV = Doc("The `MIGRAPHX_*` variables of the compile that change the program.", maxProperties=limits.MAX_VARIABLES)
OPTIONS = Doc("Other compile options of MIGraphX that change the program.", maxProperties=limits.MAX_VARIABLES)
OFFLOAD_COPY, FAST_MATH = Doc(BY_NAME["offload_copy"].about), Doc(BY_NAME["fast_math"].about)

FEATURE_STATES = ("+", "-")
SRAMECC = Doc("The setting of sramecc, for archs that have one.", enum=FEATURE_STATES)
XNACK = Doc("The setting of xnack, for archs that have one.", enum=FEATURE_STATES)
NEEDED_STATES = (*FEATURE_STATES, "any")
NEEDED_SRAMECC = Doc("The setting of sramecc that the program needs.", enum=NEEDED_STATES)
NEEDED_XNACK = Doc("The setting of xnack that the program needs.", enum=NEEDED_STATES)
NUM_CU = Doc(BY_NAME["num_cu"].about, examples=[304], **_COUNT)
CHIPLETS = Doc(BY_NAME["chiplets"].about, **_COUNT)
REAL_ARCH = Doc(BY_NAME["real_arch"].about, pattern=target.BASE_ARCH)
ROCM_PATCH = Doc("The full version of ROCm (or DTK).", pattern=_PATCH, examples=["7.2.1"])
MIGRAPHX_PATCH = Doc("The full version of MIGraphX.", pattern=_PATCH, examples=["2.15.0"])
BUILD = Doc("The build of MIGraphX: a git hash or a package.", maxLength=limits.MAX_WORD_LENGTH)
TUNING = Doc("How thoroughly MIGraphX tunes the program.", enum=target.TUNINGS)
ALLOW = Doc(
    "The relaxations that the request accepts: another CU count, another patch version, another minor release of "
    "ROCm (from 10 on, and only without `rocm_patch`), a cross-compiled or an eager program, one for a spoofed "
    "arch, a dynamic shape for a static one.",
    items={"enum": tuple(ALLOWANCES)},
)

# Of several messages of the API.
ITEMS = Doc("The items of this page.")
NEXT = Doc("Pass it as `after` to get the next page; null on the last page.")
KEY = Doc("The facts that must match exactly.")
CONSTRAINTS = Doc("What the attributes of the artifact must be.")
ATTRIBUTES = Doc("The facts that are not part of the key.")
CREATED_AT = Doc("When it was created.")
UPDATED_AT = Doc("When it changed last.")
USED_AT = Doc("When it was used last.")
DIGEST = Doc("The digest of the key: the sha256 of its canonical JSON.", pattern=SHA256)
ARTIFACT_ID = Doc("The id of the artifact.", pattern=SHA256, examples=[SHA])
BYTES_SHA256 = Doc("The sha256 of the bytes in lower-case hex.", pattern=SHA256, examples=[SHA])
NAME = Doc("The name.", minLength=1)
ONNX = Doc("The name of the ONNX file in the manifest.", minLength=1, maxLength=limits.MAX_NAME_LENGTH)
PROVENANCE = Doc("What the publisher or the worker says about how it was made; nobody verified it.")
MANIFEST = Doc("The files and their blobs.")
MATCH = Doc("How well the artifact matches.")
ESTIMATE = Doc("How long the whole compile probably takes. In seconds.", minimum=0)
ESTIMATE_FROM = Doc("What the estimate is based on.")
WAIT = Doc("How long the registry waits with its reply. In seconds.", minimum=0, maximum=60)
WORKER = Doc("The name of the worker.")
MODEL_NAME = Doc("What the model is called: a label that identifies nothing.")
CONSUMER = Doc("The program that runs the model, such as `ort` or `triton`.")
SECRET = "^[0-9A-Za-z_-]{43}$"
"""The form of a secret of 256 bits, in base64url."""
CREDENTIAL = Doc("The secret that the worker made for itself. No reply has it.", pattern=SECRET)
LEASE = Doc("The secret that the worker made for this lease. No reply has it.", pattern=SECRET)
LOG = Doc("New text of the log.", maxLength=limits.MAX_LOG_BYTES)
CAN = Doc("What it can compile.")
QUEUED = Doc("Queued jobs.", minimum=0)
RUNNING = Doc("Running jobs.", minimum=0)
OLDEST_SECONDS = Doc("The age of the oldest queued job, or 0. In seconds.", minimum=0)
PRIORITY = Doc("Jobs with a higher priority are claimed first.", minimum=-100, maximum=100)
FILE_NAME = Doc(
    "Only for a key of ONNX Runtime's form: the name under which the model is opened.",
    minLength=1,
    maxLength=limits.MAX_NAME_LENGTH,
)
PHASE = Doc("What the worker does at the moment.", maxLength=limits.MAX_PHASE_LENGTH)
LEASE_SECONDS = Doc("What is left of the lease without another heartbeat. In seconds.", minimum=0)
WORKER_ID = Doc("The id of the worker.", pattern=ID)
PINNED = Doc("The full ids of the artifacts that the lock pins.", items={"pattern": SHA256})

_SIZE = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_SIZES = {"type": "array", "items": _SIZE, "maxItems": limits.MAX_OPTIMALS}
_RANGE = {"type": "array", "prefixItems": [_SIZE, _SIZE, _SIZES], "items": {}, "minItems": 3, "maxItems": 3}
_DIM: dict[str, Any] = {
    "description": "A size, or `[min, max, [optimal sizes]]` of a dynamic dim.",
    "anyOf": [_SIZE, _RANGE],
}
_OPEN_DIM = {"description": "A dim; null is open.", "anyOf": [*_DIM["anyOf"], {"type": "null"}]}
INPUTS = Doc(
    "The shape of each input by its name.",
    additionalProperties={"type": "array", "items": _DIM, "maxItems": limits.MAX_DIMS},
    maxProperties=limits.MAX_INPUTS,
    examples=[{"x": [1, 3, 224, 224]}],
)
OPEN_INPUTS = Doc(
    "The shape of each input by its name, as far as it is known. Null: not even the number of dims is.",
    additionalProperties={"type": ["array", "null"], "items": _OPEN_DIM, "maxItems": limits.MAX_DIMS},
    maxProperties=limits.MAX_INPUTS,
    examples=[{"x": [None, 3, 224, 224]}],
)

DIFFERENCES = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": SHA256, "description": "The artifact."},
        "differences": {
            "type": "array",
            "description": "Each field in which it differs.",
            "items": {
                "type": "object",
                "properties": {
                    "field": {"type": "string", "description": "The field, such as `key.rocm`."},
                    "asked": {"description": "What the request has."},
                    "found": {"description": "What the artifact has; null if that is not known."},
                },
                "required": ["field", "asked", "found"],
            },
        },
    },
    "required": ["id", "differences"],
}
"""The schema of the differences between a request and an artifact."""
