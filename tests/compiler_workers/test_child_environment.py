"""The environment of a child: what a key can set in it, and what it never replaces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxr.errors import UsageError
from mxr_workers.interpreter import child_environment

OWN = {
    "PATH": "/bin",
    "LD_LIBRARY_PATH": "/opt/rocm/lib",
    "HSA_XNACK": "0",
    "MIGRAPHX_TRACE_EVAL": "1",
    "MXR_TOKEN": "s",
}


def test_a_key_adds_its_variables_and_options(tmp_path: Path) -> None:
    made = child_environment(
        OWN,
        tmp_path,
        {"MIGRAPHX_DISABLE_MLIR": "1"},
        tmp_path / "problems.json",
        {"split_sizes": "1,8", "mlss_use_specific_ops": "conv,dot", "convolution_layout": "channels_last"},
    )
    options = json.loads(made.pop("MIGRAPHX_GPU_OPTIONS"))
    assert options == {
        "split_sizes": [1, 8],
        "mlss_use_specific_ops": ["conv", "dot"],
        "convolution_layout": "channels_last",
    }
    assert made == {
        "PATH": "/bin",
        "LD_LIBRARY_PATH": "/opt/rocm/lib",
        "HSA_XNACK": "0",
        "MIGRAPHX_DISABLE_MLIR": "1",
        "MIGRAPHX_PROBLEM_CACHE": str(tmp_path / "problems.json"),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "OPENBLAS_NUM_THREADS": "1",
    }


@pytest.mark.parametrize(
    "name", ["MIGRAPHX_PROBLEM_CACHE", "MIGRAPHX_GPU_OPTIONS", "PATH", "LD_PRELOAD", "HOME", "HSA_XNACK"]
)
def test_a_key_never_replaces_a_variable_of_the_worker(tmp_path: Path, name: str) -> None:
    """These keys cannot be made; a registry that sends one all the same changes nothing in a child."""
    with pytest.raises(UsageError):
        child_environment(OWN, tmp_path, {name: "/tmp/elsewhere"}, tmp_path / "problems.json")
    with pytest.raises(UsageError):
        child_environment(OWN, tmp_path, {}, None, {"problem_cache_files": "/tmp/elsewhere"})
