"""Words of the pages: why a request found no program, what would help, and the commands for it.

One rule words each field, whatever the reason. Sentences are lists of `[TEXT, MARK]`, where MARK is "ask" for what was
requested and "has" for what was found; templates write them, so that no text of a client is ever markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mxr.artifact.attributes import COUNTS
from mxr.artifact.partial import PartialRequest
from mxr.artifact.target import FEATURES, GfxArch, show_dims, userland
from mxr.display.text import counted, shell_quoted
from mxr.errors import MxrError
from mxr.facts import BY_NAME, command_words
from mxr.protocol.jobs import QUEUED
from mxr.protocol.surveys import RequestStatus

from .filters import duration, value_text

Sentence = list[list[str]]

SHORT = 12
"""Digits of a hash in lists: as many as every command takes."""

MOST_NAMED = 3
"""Differences in one sentence."""

MOST_WORDS = 12
"""Words of a request in short, before its precision: a model can have a thousand inputs."""

LABELS = {"rocm": "ROCm ", "migraphx": "MIGraphX ", "rocm_patch": "ROCm ", "migraphx_patch": "MIGraphX "}
UNITS = {"num_cu": " CUs", "chiplets": " chiplets"}

REASONS = {
    "toolchain": "Toolchain",
    "shapes": "Shapes",
    "arch": "Arch",
    "hardware": "CUs, features",
    "precision": "Precision",
    "options": "Options",
    "promotion": "Not promoted",
    "recalled": "Recalled",
    "lost": "Bytes lost",
    "no_program": "No program yet",
    "unknown_model": "Unknown model",
    "other": "Other",
}
"""What the chips call the reasons of misses."""


def field_text(field: str, value: Any) -> str:
    """Return the value of a field as it stands in a sentence: `ROCm 7.2`, `304 CUs`, `xnack-`, `x 1×3×224×224`."""
    group, _, name = field.partition(".")
    name, text = name[:60], value_text(value)
    if group == "inputs":
        return f"{name} {text}"
    if group in ("env", "options"):
        return f"{name} {text}"
    if group in FEATURES:
        return f"{group}{text}" if text in "+-" else f"{group} {text}"
    if group == "calibration" and value is not None:
        return f"calibration data {text[:SHORT]}"
    if group in LABELS or group in UNITS:
        return LABELS.get(group, "") + text + UNITS.get(group, "")
    if isinstance(value, bool) or group not in ("arch", "kind", "vendor", "precision", "model"):
        return f"{group} {text}"
    return text


def why(miss: Mapping[str, Any]) -> Sentence:
    """Return why a recorded miss found no program."""
    if not miss["nearest"]:
        if miss["reason"] == "unknown_model":
            return [["The registry knows no model ", ""], [_model(miss)[7 : 7 + SHORT], "ask"], [".", ""]]
        return [["No program of this model was published yet.", ""]]
    differences = miss["nearest"][0]["differences"]
    fields = [each["field"] for each in differences]
    if fields == ["origin"]:
        found, asked = (differences[0][name] for name in ("found", "asked"))
        sentence = [["A program fits, but it was ", ""], [found, "has"], [" and this registry serves what is ", ""]]
        return [*sentence, [asked, "ask"], [".", ""]]
    if fields == ["recall"]:
        return [["A program fits, but it was ", ""], [str(differences[0]["found"]), "has"], [".", ""]]
    if fields == ["state"]:
        return [["A program fits, but the registry's store lacks bytes of it.", ""]]
    named = [each for each in differences if each["field"] not in ("origin", "state", "recall")] or differences
    asked = _listed([field_text(each["field"], each["asked"]) for each in named[:MOST_NAMED]], "ask")
    found = _listed([field_text(each["field"], each["found"]) for each in named[:MOST_NAMED]], "has")
    rest = counted(len(named) - MOST_NAMED, "more difference") if len(named) > MOST_NAMED else ""
    return [
        ["Asked for ", ""],
        *asked,
        ["; the nearest program is for ", ""],
        *found,
        [f"; {rest}." if rest else ".", ""],
    ]


def sentence_text(sentence: Sentence) -> str:
    """Return a sentence as text."""
    return "".join(text for text, _ in sentence)


def _listed(words: Sequence[str], mark: str) -> Sentence:
    found: Sentence = []
    for place, word in enumerate(words):
        between = "" if not place else " and " if place == len(words) - 1 else ", "
        found += [[between, ""]] * bool(between) + [[word, mark]]
    return found


def _model(miss: Mapping[str, Any]) -> str:
    request = miss["request"]
    return str(request.get("key", request)["model"])


def request_of(miss: Mapping[str, Any]) -> PartialRequest | None:
    """Return the request of a miss; None where this version cannot read it."""
    try:
        return PartialRequest.read(miss["request"])
    except MxrError:
        return None


def host_words(request: PartialRequest) -> list[str]:
    """Return what a request tells of its host: target, CUs, toolchain."""
    words = [str(arch_of(request) or request.kind or "any target")]
    words += [f"{value}{UNITS[name]}" for name in COUNTS if (value := getattr(request.constraints, name)) is not None]
    versions = {"MIGraphX": request.migraphx}
    if request.kind != "ref":
        versions = {userland(request.vendor): request.rocm, **versions}
    return words + [f"{name} {version}" for name, version in versions.items() if version is not None]


def request_words(request: PartialRequest) -> list[str]:
    """Return a request in short, with what is open: target, CUs, toolchain, shapes, precision."""
    words = host_words(request)
    if request.migraphx is None:
        words.append("toolchain open")
    for name, shape in request.inputs:
        dims = "open" if shape is None else "×".join("?" if dim is None else show_dims((dim,)) for dim in shape)
        words.append(dims if len(request.inputs) == 1 else f"{name} {dims}")
    if len(words) > MOST_WORDS:
        words = [*words[:MOST_WORDS], f"{len(words) - MOST_WORDS} more"]
    return [*(word[:60] for word in words), "+".join(request.precision) or "fp32"]


def arch_of(request: PartialRequest) -> GfxArch | None:
    """Return the arch of a request with its features."""
    if request.arch is None:
        return None
    return GfxArch(request.arch, request.constraints.sramecc, request.constraints.xnack)


def fetch_command(request: PartialRequest, *more: str) -> str:
    """Return the command that makes a request, by the table of facts. What is open stays so."""
    known = request.to_json()
    constraints = known.pop("constraints")
    stated = {**constraints, **known, "arch": str(arch_of(request)) if request.arch else None}
    for version in ("rocm", "migraphx"):
        stated[version] = constraints.get(f"{version}_patch") or known[version]
    stated["kind"] = known["kind"] if known["kind"] != "gpu" else None
    stated["vendor"] = known["vendor"] if known["vendor"] != "amd" else None
    stated["precision"] = known["precision"] if known["precision"] != "fp32" else None
    stated["calibration"] = "samples.npz" if known["calibration"] else None
    stated["inputs"] = {
        name: show_dims(tuple(dim for dim in shape if dim is not None))
        for name, shape in request.inputs
        if shape is not None and None not in shape
    }
    words = ["mxr", "fetch", request.model[: len("sha256:") + SHORT]]
    for name in BY_NAME:
        if name in stated and (name != "allow" or not any("--allow" in each for each in more)):
            words += [word for row in command_words(name, stated[name]) for word in row]
    return " ".join([*map(shell_quoted, words), *more])


@dataclass(frozen=True, slots=True)
class Missed:
    """A miss with what a compile request would find now. `ask`: the command that requests the compile.

    `status` is null where the viewer may not ask for one.
    """

    miss: Mapping[str, Any]
    request: PartialRequest
    status: RequestStatus | None
    ask: str

    @property
    def nearest(self) -> str:
        """The id of the nearest artifact, in short."""
        return str(self.miss["nearest"][0]["id"][:SHORT]) if self.miss["nearest"] else "ID"

    @property
    def short(self) -> str:
        """The identity of the model, in short."""
        return self.request.model[: len("sha256:") + SHORT]

    @property
    def name(self) -> str:
        """The name of the model's file."""
        return shell_quoted(self.miss["model_name"] or "MODEL.onnx")


Standing = dict[str, Any]


def standing(miss: Mapping[str, Any], request: PartialRequest | None, status: RequestStatus | None) -> Standing:
    """Return what happens to a miss now, and what would help.

    `{"state","kind","icon","text","title","commands":[COMMAND],"other":[[TEXT, COMMAND]],"job"}`. `status`: what a
    compile request would find; None where the viewer may not ask for one.
    """
    if request is None:
        return _say("missed", "off", "miss", "", "A newer mxr made this request.", [])
    found = Missed(miss, request, status, fetch_command(request, "--on-miss", "ask"))
    return next(said for rule in RULES if (said := rule(found)) is not None)


def _answered(missed: Missed) -> Standing | None:
    if missed.status is None or not missed.status.artifact:
        return None
    text = f"A program answers it by now: {missed.status.artifact[:SHORT]}."
    return _say("answered since", "ok", "ok", "Nothing to do:", text, [fetch_command(missed.request)])


def _compiling(missed: Missed) -> Standing | None:
    status = missed.status
    if status is None or not status.job or (status.state == QUEUED and not status.able):
        return None
    text = f"job {status.job[:SHORT]} compiles it{_about(status)}. Hosts get it at their next fetch."
    commands = [f"mxr jobs {status.job[:SHORT]} --follow"]
    return _say("compiling", "run", "run", "Nothing to do:", text, commands, job=status.job)


def _not_promoted(missed: Missed) -> Standing | None:
    if missed.miss["reason"] != "promotion":
        return None
    text = "if you trust who pushed it. Then every host with this request gets it."
    other = [["Have a worker build it instead:", missed.ask]]
    return _say("needs promotion", "warn", "push", "Promote it,", text, [f"mxr promote {missed.nearest}"], other)


def _acceptable(missed: Missed) -> Standing | None:
    accept = missed.miss["accept"]
    if not accept or "allow" not in accept:
        return None
    command = fetch_command(missed.request, "--allow", ",".join(accept["allow"]))
    other = [["Or compile one that fits exactly:", missed.ask]]
    return _say("can be accepted", "warn", "warn", "Take it,", "if the difference is no matter:", [command], other)


def _failed(missed: Missed) -> Standing | None:
    if missed.status is None or not missed.status.failure:
        return None
    failure = missed.status.failure
    retry = [["Try again all the same:", f"{missed.ask} --retry"]]
    text = f"{failure.kind}: {failure.message[:300]}"
    return _say("compile failed", "bad", "bad", "It failed before,", text, [], retry)


def _lost(missed: Missed) -> Standing | None:
    if missed.miss["reason"] != "lost":
        return None
    commands = [f"mxr push FILE.mxr --model {missed.name}", missed.ask]
    return _say("bytes lost", "bad", "bad", "Bring it back,", "or have it compiled again:", commands)


def _unknown(missed: Missed) -> Standing | None:
    if missed.miss["reason"] != "unknown_model":
        return None
    command = missed.ask.replace(missed.short, "MODEL.onnx", 1)
    other = [["Which bytes a host has:", "mxr identity MODEL.onnx"]]
    text = "where the model's file is; its bytes are uploaded with the request:"
    return _say("unknown model", "warn", "unk", "Ask for it", text, [command], other)


def _without_worker(missed: Missed) -> Standing | None:
    status = missed.status
    if status is None or status.able:
        return None
    text, commands = f"on a host with {', '.join(host_words(missed.request))}: none is live", ["mxr-worker run"]
    if status.job:
        text += f", and job {status.job[:SHORT]} waits for it."
    else:
        text += ". Then ask with all that is open:" if missed.request.open_facts else ". Then ask for the compile:"
        commands.append(missed.ask)
    return _say("needs a worker", "warn", "wait", "Start a worker", text, commands, job=status.job)


def _uncompiled(missed: Missed) -> Standing:
    text = "State what is open, and ask:" if missed.request.open_facts else f"A worker can{_about(missed.status)}."
    rocm = f" --rocm {missed.request.rocm}" if missed.request.rocm else ""
    other = [["Publish one that was compiled elsewhere:", f"mxr push FILE.mxr --model {missed.name}{rocm}"]]
    if missed.status is None:
        return _say(
            "missed", "off", "miss", "Have it compiled.", "A token with the scope ask can:", [missed.ask], other
        )
    return _say("nobody compiles it", "off", "miss", "Compile it.", text, [missed.ask], other)


RULES = (
    *(_answered, _compiling, _not_promoted, _acceptable, _failed, _lost, _unknown, _without_worker),
    _uncompiled,
)
"""The first one that answers says what happens to a miss."""


def _say(
    state: str,
    kind: str,
    icon: str,
    title: str,
    text: str,
    commands: list[str],
    other: Any = (),
    job: str | None = None,
) -> dict[str, Any]:
    found = {"state": state, "kind": kind, "icon": icon, "title": title, "text": text}
    return {**found, "commands": commands, "other": list(other), "job": job}


def _about(status: RequestStatus | None) -> str:
    if status is None or status.estimate is None:
        return ""
    return f", in about {duration(status.estimate)} ({status.estimate_from})"
