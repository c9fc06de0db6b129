"""The environment variables of the client."""

from __future__ import annotations

VARIABLES = {
    "registry": "MXR_REGISTRY",
    "token": "MXR_TOKEN",
    "token_file": "MXR_TOKEN_FILE",
    "ca_file": "MXR_CA_FILE",
    "cache_dir": "MXR_CACHE_DIR",
    "consumer": "MXR_CONSUMER",
    "rocm": "MXR_ROCM",
    "migraphx": "MXR_MIGRAPHX",
    "batch": "MXR_BATCH",
    "host_file": "MXR_HOST",
    "timeout": "MXR_TIMEOUT",
    "plaintext": "MXR_PLAINTEXT",
    "kserve_allow": "MXR_KSERVE_ALLOW",
    "max_age": "MXR_MAX_AGE",
    "max_stale": "MXR_MAX_STALE",
    "cache_owners": "MXR_CACHE_OWNERS",
    "state_dir": "MXR_STATE_DIR",
}
"""The variable of each setting. The user's configuration file uses the names of the settings themselves."""
