"""Limits of the documents that mxr's programs exchange and a registry stores: sizes, depths and counts, in one place.

A document within these limits can be read back by every program. Limits on connections, request bodies and inspections
are settings of the registry (`mxr_registry.config.limits`), those of a matrix are in `mxr.matrix.document`. Every JSON
document is nested at most `mxr.util.codec.MAX_DEPTH` deep. docs/operate.md lists the limits.
"""

from __future__ import annotations

from collections.abc import Collection

from mxr.util.codec import canonical, depth_exceeds, refuse

# Keys, constraints and attributes.
MAX_INPUTS = 1_000
"""Inputs of one key. A language model with a cache has some hundred."""
MAX_INPUT_TEXT = 64 * 1024
"""Characters in the names of all inputs of a key."""
MAX_DIMS = 64
"""Dims of one input."""
MAX_DIMS_IN_ALL = 8_000
"""Dims of all inputs of a key."""
MAX_OPTIMALS = 64
"""Optimal sizes of one dynamic dim."""
MAX_VARIABLES = 64
"""Environment variables of one key."""
MAX_VALUE_LENGTH = 1_000
"""Characters in the value of an environment variable."""
MAX_WORD_LENGTH = 200
"""Characters in a build, a library, a name of a failure."""

# Manifests.
MAX_FILES = 1_000
MAX_BLOBS = 20_000
FREE_BLOBS = 64
"""Blobs that a file of any size can have. It can have one more for each `BYTES_PER_BLOB` bytes."""
BYTES_PER_BLOB = 64 * 1024
MAX_NAME_LENGTH = 1_000
"""Bytes of UTF-8 in a whole file name. Each part of it can have 255, the limit of file systems."""

# Publications and models.
MAX_CANDIDATES = 200
"""Artifacts of one key that a request looks at. No more can be pushed; workers can add what they built."""
MAX_PROVENANCE_BYTES = 16 * 1024
"""Bytes of canonical JSON."""
MAX_PROVENANCE_DEPTH = 8
MAX_STATEMENT_BYTES = 256 * 1024
"""Bytes of the JSON of a statement that somebody brings."""
MAX_STATEMENT_DEPTH = 32
MAX_MODEL_INPUTS = 10_000
"""Inputs that a registered model declares."""
MAX_MODEL_TEXT = 1024 * 1024
"""Bytes of the JSON of these inputs."""

# Lists in one request.
MAX_ASKED = 20_000
"""Blobs in one request for the missing ones."""
MAX_PINNED = 20_000
"""Artifacts of one lock."""
MAX_USES = 5_000
"""Artifacts in one report of uses."""
MAX_SURVEYED = 1_000
"""Requests in one survey."""
MAX_WATCHED = 20_000
"""Jobs in one watch."""

# Workers and jobs.
MAX_TARGETS = 64
MAX_TRUSTED = 64
MAX_CAPABILITIES_BYTES = 16 * 1024
"""Bytes of the JSON of what a worker can compile."""
MAX_ALL_CAPABILITIES = 1024 * 1024
"""Bytes of the different capabilities of all workers of a namespace."""
MAX_LOG_BYTES = 256 * 1024
"""Characters of log in one message of a worker."""
MAX_PHASE_LENGTH = 40
MAX_MESSAGE_LENGTH = 16 * 1024
"""Characters in the message of a failure."""

# What a registry keeps of requests that nobody published, for each namespace.
MAX_MISSES = 5_000
MAX_MISS_HOSTS = 200
"""Hosts that are kept of one principal for one miss."""
MAX_MISS_ASKERS = 20_000
"""Hosts and principals that are kept for all misses, those that asked last."""
MAX_MISS_BYTES = 32 * 1024
"""Bytes of the JSON of a request that is recorded as a miss; a larger one is not recorded."""
MAX_LOCKS = 10_000
MAX_LOCKS_EACH = 1_000
"""Locks that one principal registers."""
MAX_WORKERS = 10_000
MAX_OPEN_JOBS = 20_000
MAX_OPEN_PER_KEY = 50
"""Open jobs of one key for which one principal asked: they differ in what they require of the GPU and the build."""
MAX_TOKENS = 10_000
MAX_TOKEN_SECONDS = 10 * 365 * 86_400

# What a registry tells about a file.
MAX_DESCRIPTION_BYTES = 4 * 1024 * 1024
"""Bytes of the JSON that describes the programs of one artifact, or a model."""


def check_count(values: Collection[object], most: int, where: str, what: str) -> None:
    """Raise `UsageError` for more than `most` values."""
    if len(values) > most:
        raise refuse(where, f"at most {most} {what}", len(values))


def check_length(text: str | None, most: int, where: str) -> None:
    """Raise `UsageError` for a text of more than `most` characters."""
    if text is not None and len(text) > most:
        raise refuse(where, f"at most {most} characters", len(text))


def check_inputs(inputs: Collection[tuple[str, object]], where: str) -> None:
    """Check names and shapes of the inputs of a key, before anything is computed from them. Raises `UsageError`."""
    check_count(inputs, MAX_INPUTS, where, "inputs")
    total = sum(len(name) for name, _ in inputs)
    if total > MAX_INPUT_TEXT:
        raise refuse(where, f"names of at most {MAX_INPUT_TEXT} characters together", total)
    dims = 0
    for name, shape in inputs:
        if not isinstance(shape, (list, tuple)) or len(shape) > MAX_DIMS:
            raise refuse(f"{where}.{name}", f"a list of at most {MAX_DIMS} dims", shape)
        dims += len(shape)
    if dims > MAX_DIMS_IN_ALL:
        raise refuse(where, f"at most {MAX_DIMS_IN_ALL} dims together", dims)


def check_document(document: object, most: int, deepest: int, where: str) -> None:
    """Check a document that is stored as it came: bytes of canonical JSON, and depth. Raises `UsageError`."""
    if depth_exceeds(document, deepest):
        raise refuse(where, f"at most {deepest} levels of lists and objects", "more")
    try:
        size = len(canonical(document).encode())
    except (ValueError, TypeError):
        raise refuse(where, "finite numbers, and strings without lone surrogates", "others") from None
    if size > most:
        raise refuse(where, f"at most {most} bytes of JSON", size)
