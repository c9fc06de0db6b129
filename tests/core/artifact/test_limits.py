"""The limits of documents: each is checked before anything is computed from what exceeds it."""

from __future__ import annotations

from typing import Any

import pytest
from harness.workers import secret_of

from mxr.artifact import limits
from mxr.artifact.attributes import Attributes, Constraints
from mxr.artifact.key import Key, inputs_from_json
from mxr.errors import UsageError
from mxr.host_facts import HostTarget, HostToolchain
from mxr.protocol import jobs as job_protocol
from mxr.protocol.artifacts import ModelClaim, Publish
from mxr.util import codec

SECRET = secret_of("a lease")


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({str(number): [1] for number in range(100_000)}, "at most 1000 inputs"),
        ({"x" * 70_000: [1]}, "65536 characters together"),
        ({f"{number:0100}": [1] for number in range(700)}, "65536 characters together"),
        ({"x": [1] * 65}, "at most 64 dims"),
        ({str(number): [1] * 64 for number in range(130)}, "8000 dims together"),
        ({"x": [[1, 1000, list(range(1, 100))]]}, "at most 64 optimal sizes"),
        ({"x": nested(1000)}, "a dim such as"),
    ],
)
def test_inputs(inputs: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        inputs_from_json(inputs, "inputs")


def test_a_key_made_in_a_program_has_the_same_limits() -> None:
    with pytest.raises(UsageError, match="at most 1000 inputs"):
        Key("sha256:" + "0" * 64, "ref", "2.16", tuple((str(number), (1,)) for number in range(1001)))


@pytest.mark.parametrize("kind", [Attributes, Constraints])
def test_builds(kind: Any) -> None:
    assert kind(build="x" * limits.MAX_WORD_LENGTH)
    with pytest.raises(UsageError, match="build"):
        kind(build="x" * (limits.MAX_WORD_LENGTH + 1))


@pytest.mark.parametrize("levels", [limits.MAX_PROVENANCE_DEPTH, 1000, 100_000])
@pytest.mark.parametrize("kind", [Publish, job_protocol.FailJob])
def test_depth_of_provenance(kind: Any, levels: int) -> None:
    wrong = {"provenance": {"a": nested(levels)}}
    others = {"lease": SECRET, "failure": job_protocol.JobFailure("transient", "x")}
    if kind is Publish:
        others = {"key": Key("sha256:" + "0" * 64, "ref", "2.16", ()), "manifest": None}
    assert kind(**others, provenance={"a": nested(limits.MAX_PROVENANCE_DEPTH - 1)})
    with pytest.raises(UsageError, match="levels of lists"):
        kind(**others, **wrong)


def test_what_workers_send() -> None:
    target = HostTarget("gfx908", name="x" * limits.MAX_CAPABILITIES_BYTES)
    failure = job_protocol.JobFailure("transient", "x")
    artifact: Any = None
    for make in (
        lambda: job_protocol.WorkerCapabilities((target,), HostToolchain()),
        lambda: job_protocol.WorkerCapabilities((HostTarget("gfx908"),) * 65, HostToolchain()),
        lambda: job_protocol.JobFailure("transient", "x" * (limits.MAX_MESSAGE_LENGTH + 1)),
        lambda: job_protocol.JobFailure("transient", "x", "y" * (limits.MAX_WORD_LENGTH + 1)),
        lambda: job_protocol.Heartbeat(SECRET, log="x" * (limits.MAX_LOG_BYTES + 1)),
        lambda: job_protocol.Heartbeat(SECRET, phase="x" * (limits.MAX_PHASE_LENGTH + 1)),
        lambda: job_protocol.FinishJob(SECRET, artifact, log="x" * (limits.MAX_LOG_BYTES + 1)),
        lambda: job_protocol.FailJob(SECRET, failure, log="x" * (limits.MAX_LOG_BYTES + 1)),
        lambda: job_protocol.FailJob(SECRET, failure, provenance={"x": "y" * limits.MAX_PROVENANCE_BYTES}),
    ):
        with pytest.raises(UsageError, match=r"at most|1 to 64"):
            make()


def test_inputs_of_a_model() -> None:
    one = {"name": "x", "type": "float32", "dims": [1]}
    document = {"name": "m.onnx"}
    for inputs, words in (
        ([one] * 10_001, "at most 10000 inputs"),
        ([one | {"name": "x" * 300_000}] * 4, "bytes of JSON"),
    ):
        with pytest.raises(UsageError, match=words):
            codec.decode(ModelClaim, document | {"inputs": inputs})


@pytest.mark.parametrize("levels", [codec.MAX_DEPTH + 1, 500, 900, 100_000])
@pytest.mark.parametrize("pair", ["[]", ('{"a":', "}")])
def test_every_json_document_has_a_depth(levels: int, pair: Any) -> None:
    begin, end = pair
    assert codec.parse(begin * (codec.MAX_DEPTH - 1) + "[]" + end * (codec.MAX_DEPTH - 1), "It")
    for text in (begin * levels + "1" + end * levels, (begin * levels + "1" + end * levels).encode()):
        with pytest.raises(UsageError, match="It is not valid JSON"):
            codec.parse(text, "It")


def test_wide_documents_are_not_deep() -> None:
    assert len(codec.parse("[" + ",".join(["[[]]"] * 10_000) + "]", "It")) == 10_000
