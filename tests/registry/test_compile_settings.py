"""Keys with forbidden environment variables and options, sent straight to the API: refused everywhere."""

from __future__ import annotations

from typing import Any

import pytest
from registry.registry_client import Parts, RegistryUnderTest, on_sqlite

BAD: list[dict[str, Any]] = [
    {"env": {"MIGRAPHX_PROBLEM_CACHE": "/tmp/x"}},
    {"env": {"MIGRAPHX_MLIR_TUNING_DB": "../x"}},
    {"env": {"MIGRAPHX_GPU_HIP_FLAGS": "-fplugin=/tmp/x.so"}},
    {"env": {"MIGRAPHX_GPU_OPTIMIZE": "3 -fplugin=/tmp/x.so"}},
    {"env": {"MIGRAPHX_NSTREAMS": "1;reboot"}},
    {"env": {"MIGRAPHX_TRACE_EVAL": "1"}},
    {"env": {"MIGRAPHX_GPU_OPTIONS": "{problem_cache_files:[/tmp/x]}"}},
    {"env": {"LD_PRELOAD": "/tmp/x.so"}},
    {"options": {"problem_cache_files": "/tmp/x"}},
    {"options": {"split_sizes": "1],problem_cache_files:[/tmp/x"}},
    {"options": {"convolution_layout": "/tmp/x"}},
]


@on_sqlite
@pytest.mark.parametrize("more", BAD, ids=lambda more: next(iter(next(iter(more.values())))))
def test_no_route_accepts_them(server: RegistryUnderTest, parts: Parts, more: dict[str, Any]) -> None:
    key = parts.ref_key(**more)
    name = next(iter(next(iter(more.values()))))
    for path, body in (
        ("/v1/resolve", {"key": key, "constraints": {}}),
        ("/v1/jobs", {"key": key, "constraints": {}}),
        ("/v1/survey", {"requests": [{"key": key, "constraints": {}}]}),
    ):
        status, said = server.call("POST", path, body)
        assert (status, said["code"]) == (422, "usage"), path
        assert name in said["detail"], path
    status, said = server.publish(parts.ref, key)
    assert (status, said["code"]) == (422, "usage")
    assert server.call("GET", "/v1/jobs")[1]["items"] == []
