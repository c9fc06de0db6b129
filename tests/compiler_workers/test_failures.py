"""How failures are classified, by how the child ended and by the texts that it left."""

from __future__ import annotations

import signal

from harness.rows import for_each

from mxr_workers.failures import classify
from mxr_workers.sandbox import ChildResult

POOL = b"terminate called recursively\nterminate called after throwing an instance of 'std::system_error'\n"
HANG = "HW Exception by GPU node-1 (Agent handle: 0x5581) reason :GPU Hang"
TUNED = "/src/src/targets/gpu/compile_ops.cpp:288: benchmark: No valid tuned compilation for gpu::mlir_op with conv"
VRAM = "/src/src/targets/gpu/hip.cpp:120: allocate_gpu: Memory not available to allocate buffer: 1073741824"
ODD = "a text that no table has"

KILLED = {"why": "exited", "signal": int(signal.SIGKILL)}
ABORTED = {"why": "exited", "signal": int(signal.SIGABRT)}


def raised(text: str) -> dict:
    """A child that reported an exception of MIGraphX."""
    return {"why": "exited", "code": 1, "failed": {"type": "RuntimeError", "message": text}}


@for_each(
    [
        ({"why": "exited", "stuck": (7,), "signal": 9}, b"", "hang", "unkillable"),
        ({"why": "deadline", "seconds": 5}, b"MES failed to respond to msg=3", "hang", "deadline"),
        ({"why": "memory", "phase": "compile"}, b"", "transient", "memory"),
        ({**KILLED, "oom_kills": 1}, b"", "transient", "oom-killed"),
        ({**KILLED}, b"", "transient", "killed"),
        ({**KILLED}, b"HW Exception by GPU node-1 (Agent handle: 0x55) reason :GPU Hang\n", "hang", "gpu-hang"),
        ({"why": "lost"}, b"", "poison", "lost"),
        ({"why": "stopped"}, b"", "transient", "stopped"),
        (ABORTED, b"terminate called after throwing an instance of 'std::bad_alloc'\n", "transient", "host-memory"),
        (ABORTED, POOL, "permanent", "pool-thread"),
        (ABORTED, HANG.encode(), "hang", "gpu-hang"),
        (ABORTED, b"free(): invalid pointer\n", "poison", "aborted"),
        (ABORTED, b"", "poison", "aborted"),
        ({"why": "exited", "signal": int(signal.SIGTERM)}, b"", "transient", "killed"),
        ({"why": "exited", "signal": int(signal.SIGBUS)}, b"", "poison", "crashed"),
        ({"why": "exited", "signal": 64}, b"", "poison", "crashed"),
        ({"why": "exited", "code": 127}, b"cannot start /no/python", "transient", "unknown"),
        (raised(TUNED), b"", "permanent", "no-tuned-kernel"),
        (raised(VRAM), b"", "transient", "gpu-memory"),
        (raised(ODD), b"", "transient", "unknown"),
        (
            {"why": "exited", "code": 1, "failed": {"type": "RuntimeError", "message": "No device", "kind": None}},
            b"",
            "transient",
            "no-device",
        ),
        (
            {"why": "exited", "code": 1, "failed": {"type": "OSError", "message": "[Errno 28] No space left"}},
            b"",
            "transient",
            "unknown",
        ),
        (
            {"why": "exited", "code": 1, "failed": {"kind": "permanent", "name": "no-fp8", "message": "no\nfp8"}},
            b"HIP failure 700",
            "hang",
            "illegal-access",
        ),
    ]
)
def test_a_failure_is_classified(ending: dict, log: bytes, kind: str, name: str) -> None:
    failure = classify(ChildResult(**ending), log)
    assert (failure.kind, failure.name) == (kind, name), failure
    assert failure.message.isprintable()


def test_a_message_has_no_control_characters() -> None:
    failure = classify(ChildResult("exited", code=2), b"\x1b[2Jevil\x07 text")
    assert "\x1b" not in failure.message and "evil" in failure.message


def test_a_rejection_is_permanent_only_while_compiling() -> None:
    failed = {"type": "RuntimeError", "message": "/src/src/onnx/onnx_parser.cpp:1: parse_graph: Unknown operator: X"}
    ending = ChildResult("exited", code=1, failed=failed)
    assert classify(ending, b"").kind == "permanent"
    assert classify(ending, b"", stage="verify").kind == "transient"
