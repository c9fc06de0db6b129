"""What endings mean that no test can bring about for real: a driver that holds a process, the kernel's own kills."""

from __future__ import annotations

import signal

import pytest

from mxr_workers.failures import classify
from mxr_workers.sandbox import ChildResult

KILLED = {"why": "exited", "signal": int(signal.SIGKILL)}
ABORTED = {"why": "exited", "signal": int(signal.SIGABRT)}


@pytest.mark.parametrize(
    ("ending", "log", "kind", "name"),
    [
        ({"why": "exited", "stuck": (7,), "signal": 9}, b"", "hang", "unkillable"),
        ({"why": "deadline", "seconds": 5}, b"MES failed to respond to msg=3", "hang", "deadline"),
        ({**KILLED, "oom_kills": 1}, b"", "transient", "oom-killed"),
        ({**KILLED}, b"", "transient", "killed"),
        ({**KILLED}, b"HW Exception by GPU node-1 (Agent handle: 0x55) reason :GPU Hang\n", "hang", "gpu-hang"),
        ({"why": "lost"}, b"", "transient", "lost"),
        ({"why": "stopped"}, b"", "transient", "stopped"),
        (ABORTED, b"terminate called after throwing an instance of 'std::bad_alloc'\n", "transient", "host-memory"),
        (ABORTED, b"", "poison-suspect", "aborted"),
        ({"why": "exited", "signal": 64}, b"", "poison-suspect", "crashed"),
        ({"why": "exited", "code": 127}, b"cannot start /no/python", "transient", "unknown"),
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
    ],
)
def test_kinds(ending: dict, log: bytes, kind: str, name: str) -> None:
    failure = classify(ChildResult(**ending), log)
    assert (failure.kind, failure.name) == (kind, name), failure
    assert failure.message.isprintable()


def test_a_log_cannot_steer_a_terminal() -> None:
    failure = classify(ChildResult("exited", code=2), b"\x1b[2Jevil\x07 words")
    assert "\x1b" not in failure.message and "evil" in failure.message


def test_a_refusal_counts_for_ever_only_while_compiling() -> None:
    failed = {"type": "RuntimeError", "message": "/src/src/onnx/onnx_parser.cpp:1: parse_graph: Unknown operator: X"}
    ending = ChildResult("exited", code=1, failed=failed)
    assert classify(ending, b"").kind == "permanent"
    assert classify(ending, b"", stage="verify").kind == "transient"
