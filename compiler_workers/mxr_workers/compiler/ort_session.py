"""The only file that imports onnxruntime: run a session whose MIGraphX provider writes its files, or loads them."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

from .migraphx_module import import_numpy
from .report import ChildRefusal, ChildReport
from .tensors import random_array

PROVIDER = "MIGraphXExecutionProvider"
LIBRARY = "libonnxruntime_providers_migraphx.so"
LEVELS = {"all": "ORT_ENABLE_ALL", "basic": "ORT_ENABLE_BASIC", "disable": "ORT_DISABLE_ALL"}
TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(bool)": "bool"}
TYPES.update({f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)})

MODEL_ERRORS = ("InvalidGraph", "InvalidProtobuf", "NotImplemented")
"""ONNX Runtime exceptions that the model itself causes, so that they occur on every host.
Source: microsoft/onnxruntime, onnxruntime/python/onnxruntime_pybind_exceptions.cc."""

RELU = bytes.fromhex(
    "080712003a330a0c0a0178120179220452656c751201675a0f0a0178120a0a08"
    "080112040a020802620f0a0179120a0a08080112040a02080242040a00100d"
)
"""An ONNX file: y = Relu(x), two floats."""


def runtime(_: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """The ONNX Runtime of this interpreter, after its MIGraphX provider has compiled and run a Relu.

    Raises `ChildRefusal` with the name `no-onnxruntime` where there is no ONNX Runtime with that provider.
    """
    library = _find_provider_library()
    if library is None:
        raise ChildRefusal(
            "permanent", "no-onnxruntime", f"{sys.executable} has no ONNX Runtime with a MIGraphX provider."
        )
    ort, np = _import_onnxruntime(), import_numpy()
    report.phase("run")
    _create_session(ort, RELU, ort.SessionOptions(), {}).run(None, {"x": np.array([-1, 2], "float32")})
    return {"library": str(library), "version": ort.__version__}


def run(request: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """Handle the request `{"model","bytes","level","options","inputs","seed","phase"}`: open a session, run it twice,
    time the second run. The provider options name the cache folder.

    A model with input types that numpy does not have is opened but not run: `ran` is False and `unrun` lists the types.
    """
    ort, np = _import_onnxruntime(), import_numpy()
    settings = ort.SessionOptions()
    settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[request["level"]])
    model = request["model"]
    if request["bytes"]:
        model = Path(model).read_bytes()
    report.phase(request["phase"])
    session = _create_session(ort, model, settings, request["options"])
    result: dict[str, Any] = {"onnxruntime": ort.__version__, "seconds": report.seconds}
    session_inputs = {each.name: each for each in session.get_inputs()}
    result["unrun"] = sorted({each.type for each in session_inputs.values()} - set(TYPES))
    if result["unrun"]:
        return dict(result, ran=False, finite=None, latency_ms=None)
    random = np.random.default_rng(request["seed"])
    inputs = {
        name: random_array(np, random, request["inputs"][name], TYPES[session_inputs[name].type])
        for name in sorted(session_inputs)
    }
    report.phase("run")
    session.run(None, inputs)
    start = time.perf_counter()
    outputs = session.run(None, inputs)
    latency = (time.perf_counter() - start) * 1000
    report.phase("end")
    arrays = [output for output in outputs if isinstance(output, np.ndarray) and output.dtype.kind == "f"]
    finite = all(bool(np.isfinite(array).all()) for array in arrays)
    return dict(result, ran=True, finite=finite, latency_ms=round(latency, 3))


def _import_onnxruntime() -> Any:
    """Import onnxruntime. Raises `ChildRefusal` where that fails."""
    try:
        import onnxruntime  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise ChildRefusal(
            "transient", "no-onnxruntime", f"{sys.executable} cannot import onnxruntime: {error}."
        ) from error
    return onnxruntime


def _find_provider_library() -> Path | None:
    """The provider's library, found without importing onnxruntime; None where there is none."""
    spec = importlib.util.find_spec("onnxruntime")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder, "capi", LIBRARY)
        if path.is_file():
            return path
    return None


def _create_session(ort: Any, model: Any, settings: Any, options: dict[str, str]) -> Any:
    """Create a session with the MIGraphX provider first and the CPU provider for the remaining nodes.

    The Python module's fallback is off: after any error it would open the model again on the CPU alone and hide the
    cause. Source: microsoft/onnxruntime, onnxruntime/python/onnxruntime_inference_collection.py.
    """
    providers = [(PROVIDER, options), "CPUExecutionProvider"]
    try:
        session = ort.InferenceSession(model, settings, providers=providers, enable_fallback=0)
    except Exception as error:
        if type(error).__name__ in MODEL_ERRORS:
            raise ChildRefusal("permanent", "unfit-model", str(error)) from error
        raise
    if PROVIDER not in session.get_providers():
        raise ChildRefusal(
            "transient", "no-provider", "ONNX Runtime fell back to the CPU: its MIGraphX provider did not start."
        )
    return session
