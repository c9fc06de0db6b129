"""What the type of a field does not tell: meaning, pattern, range and unit, for each field of each message.

The name of a field means the same everywhere, except where an entry names the message too. The rules themselves are in
the code that checks a message; a test holds both together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mxr.artifact import limits, matching, target
from mxr.artifact.attributes import ALLOWANCES, LIBRARIES
from mxr.artifact.key import FORM, KEY_VERSION, MODEL, Key
from mxr.artifact.manifest import SHA256, Manifest
from mxr.artifact.matching import Match
from mxr.consumers.ort.recording_form import BY_WORKERS, RUNTIME_VERSION
from mxr.facts import BY_NAME
from mxr.protocol import access
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import HUGE

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Enumeration:
    """A named set of texts: generators of clients make one type of it, wherever it is used.

    `names`: the names of the values, where they are no words.
    """

    name: str
    description: str
    values: tuple[str, ...]
    names: tuple[str, ...] = ()


VENDOR = Enumeration("Vendor", "The vendor of a GPU.", target.VENDORS)
TARGET_KIND = Enumeration(
    "TargetKind", "`gpu`, or `ref` for the reference target, which runs on any CPU.", target.KINDS
)
TUNING = Enumeration("Tuning", "How thoroughly MIGraphX tunes a program.", target.TUNINGS)
FEATURE = Enumeration("Feature", "A setting of a GPU: on or off.", ("+", "-"), ("ON", "OFF"))
NEEDED_FEATURE = Enumeration(
    "NeededFeature", "A setting of a GPU that a program needs: on, off or any.", ("+", "-", "any"), ("ON", "OFF", "ANY")
)
LIBRARY = Enumeration("Library", "A library that programs call.", tuple(LIBRARIES))
ALLOWANCE = Enumeration("Allowance", "A difference that a request can accept.", tuple(ALLOWANCES))
JOB_STATE = Enumeration("JobState", "The state of a job.", tuple(job_protocol.STATES))
FAILURE_KIND = Enumeration(
    "FailureKind", "What another attempt can be expected to do.", tuple(job_protocol.FAILURE_KINDS)
)
WORKER_STATE = Enumeration("WorkerState", "The state of a worker.", ("idle", "busy", "lost", "left"))
ORIGIN = Enumeration("Origin", "Who made an artifact.", tuple(matching.ORIGINS))
SERVE_RULE = Enumeration("ServeRule", "Which artifacts answer requests.", tuple(matching.SERVE_RULES))
MODEL_EVIDENCE = Enumeration("ModelEvidence", "How the model of an artifact is known.", ("verified", "claimed"))
SCOPE = Enumeration("Scope", "What a token allows.", tuple(access.SCOPES))
TOKEN_STATE = Enumeration("TokenState", "The state of a token.", access.STATES)
GENERATION = Enumeration(
    "OrtGeneration", "A generation of the file names of ONNX Runtime's MIGraphX provider.", tuple(BY_WORKERS)
)

CLASSES: dict[str, Facts] = {}
"""What is said of a whole message."""

SHA = "7b5cd4daa4ba0a12de4ecf60ef402451c363b0ee1d146f0d0cf5a7dc1ec27455"
VERSION = r"^[0-9]{1,6}\.[0-9]{1,6}$"
PATCH = r"^[0-9]{1,6}\.[0-9]{1,6}\.[0-9A-Za-z.+~-]{1,60}$"
ID = "^[0-9a-f]{32}$"
SIZE = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
DIM: dict[str, Any] = {
    "description": "A size, or `[min, max, [optimal sizes]]` of a dynamic dim.",
    "anyOf": [
        SIZE,
        {
            "type": "array",
            "prefixItems": [SIZE, SIZE, {"type": "array", "items": SIZE, "maxItems": limits.MAX_OPTIMALS}],
            "items": {},
            "minItems": 3,
            "maxItems": 3,
        },
    ],
}
OPEN_DIM: dict[str, Any] = {"anyOf": [*DIM["anyOf"], {"type": "null"}], "description": "A dim; null is open."}
DIMS = {"type": "array", "items": DIM, "maxItems": limits.MAX_DIMS}
OPEN_DIMS = {"type": ["array", "null"], "items": OPEN_DIM, "maxItems": limits.MAX_DIMS}


def whole(pattern: re.Pattern[str]) -> str:
    """Return a pattern that must match the whole text."""
    return f"^(?:{pattern.pattern})$"


def count(description: str, least: int = 0, most: int = HUGE, **more: Any) -> Facts:
    """Return the facts of an integer with a range."""
    return {"description": description, "minimum": least, "maximum": most, **more}


def seconds(description: str, **more: Any) -> Facts:
    """Return the facts of a duration in seconds."""
    return {"description": f"{description} In seconds.", "minimum": 0, **more}


def text(description: str, **more: Any) -> Facts:
    """Return the facts of any other field."""
    return {"description": description, **more}


FILE_NAME = {"minLength": 1, "maxLength": limits.MAX_NAME_LENGTH}
DIFFERENCES = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": whole(SHA256), "description": "The artifact."},
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

FACTS: dict[str, Facts] = {
    "able": text("A live worker or a declared pool can compile it."),
    "ago": seconds("The age of the last use."),
    "allow": text(
        "The relaxations that the request accepts: another CU count, another patch version, another minor release of "
        "ROCm (from 10 on, and only without `rocm_patch`), a cross-compiled or an eager program, one for a spoofed "
        "arch, a dynamic shape for a static one.",
        items=ALLOWANCE,
    ),
    "amend": text("Replace attributes and provenance of an artifact with these bytes that the caller pushed."),
    "also_for": text("These bytes are published for another model, and are right for this one, too."),
    "arch": text("The GPU architecture.", examples=["gfx942"]),
    "HostTarget.arch": text("The GPU architecture; `ref` for the reference target.", examples=["gfx942"]),
    "artifact": text("The artifact."),
    "Job.artifact": text("The id of the result.", pattern=whole(SHA256)),
    "RequestStatus.artifact": text("The id of the artifact that a resolve would choose.", pattern=whole(SHA256)),
    "FinishJob.artifact": text("The compiled program."),
    "artifacts": text("The full ids of the artifacts that the lock pins.", items={"pattern": whole(SHA256)}),
    "assumed": text("Facts that are not known of the artifact, with the value that the request assumes."),
    "attempt": count("The number of this attempt; 1 is the first.", 1),
    "attempts": count("How often a worker has tried."),
    "attributes": text("The facts that are not part of the key."),
    "batch": count("A batch size.", 1, 2**31 - 1),
    "blobs": text("The blobs, in their order in the file."),
    "MissingRequest.blobs": text("The blobs to look for.", maxItems=limits.MAX_ASKED),
    "build": text("The build of MIGraphX: a git hash or a package.", maxLength=limits.MAX_WORD_LENGTH),
    "calibration": text("The sha256 of the calibration data; for int8 and fp8.", pattern=whole(SHA256)),
    "can": text("What it can compile."),
    "cancelled": text("The job was cancelled: stop the compile."),
    "candidates": text("The ways, at most 50."),
    "changed_at": text("The last time when facts of the artifact were replaced."),
    "chiplets": count(BY_NAME["chiplets"].about, 1, 65_536),
    "claimed": text("The registry never had the bytes: name and inputs are what publishers of programs say."),
    "complete": text("The registry has the bytes of the model."),
    "constraints": text("What the attributes of the artifact must be."),
    "consumer": text("The program that runs the model, such as `ort` or `triton`."),
    "count": count("How often.", 1),
    "Use.count": count("How often it was used.", 1, 10**9),
    "created_at": text("When it was created."),
    "created_by": text("Who published it."),
    "RegisteredLock.created_by": text("The principal that it belongs to."),
    "Token.created_by": text("Who made it."),
    "cross": text("It can cross-compile for AMD GPUs that it does not have."),
    "Lease.cross": text("Compile for the GPU that key and constraints describe, instead of the target."),
    "description": text("What the registry read from the programs themselves."),
    "digest": text("The digest of the key: the sha256 of its canonical JSON.", pattern=whole(SHA256)),
    "dims": text("Sizes, symbols, or null for an open dim; null if not even their number is declared."),
    "eager": text("Its MIGraphX has compile modes, and can compile eagerly."),
    "env": text(
        "The `MIGRAPHX_*` variables of the compile that change the program.", maxProperties=limits.MAX_VARIABLES
    ),
    "estimate": seconds("How long the whole compile probably takes."),
    "estimate_from": text("What the estimate is based on."),
    "etag": text("The entity tag, for `If-None-Match` of `GET /v1/artifacts/{id}`."),
    "exact": text(BY_NAME["exact"].about),
    "Match.exact": text("The artifact satisfies each constraint, and nothing is assumed."),
    "expires": seconds(
        "How long the token is valid; without it, until it is revoked.", minimum=1, maximum=limits.MAX_TOKEN_SECONDS
    ),
    "expires_at": text("When the token expires; null: never."),
    "failure": text("Why it failed."),
    "RequestStatus.failure": text("The remembered failure that a compile request would get."),
    "fast_math": text(BY_NAME["fast_math"].about),
    "fence": count("The fencing number of the lease."),
    "file_name": text("Only for a key of ONNX Runtime's form: the name under which the model is opened.", **FILE_NAME),
    "files": text("The files.", maxItems=limits.MAX_FILES),
    "first_at": text("When it was requested first."),
    "form": text("`whole` for one program, or the form of a set recorded by ONNX Runtime.", pattern=whole(FORM)),
    "generation": text("The generation of the file names of its MIGraphX provider.", of=GENERATION),
    "gone": text("The ids of jobs that do not exist."),
    "grace": seconds("How long the registry keeps the other blobs at least."),
    "Artifact.id": text("The id of the artifact.", pattern=whole(SHA256), examples=[SHA]),
    "Choice.id": text("The artifact that a resolve would choose.", pattern=whole(SHA256), examples=[SHA]),
    "Use.id": text("The id of the artifact.", pattern=whole(SHA256), examples=[SHA]),
    "Token.id": text("The id of the token, which is no secret.", pattern=f"^{access.TOKEN_ID.pattern}$"),
    "Job.id": text("The id of the job; empty if no job was needed.", pattern="^([0-9a-f]{32})?$"),
    "WorkerInfo.id": text("The id of the worker.", pattern=ID),
    "inputs": text("The declared inputs.", maxItems=limits.MAX_MODEL_INPUTS),
    "Key.inputs": text(
        "The shape of each input by its name.",
        additionalProperties=DIMS,
        maxProperties=limits.MAX_INPUTS,
        examples=[{"x": [1, 3, 224, 224]}],
    ),
    "PartialRequest.inputs": text(
        "The shape of each input by its name, as far as it is known. Null: not even the number of dims is.",
        additionalProperties=OPEN_DIMS,
        maxProperties=limits.MAX_INPUTS,
        examples=[{"x": [None, 3, 224, 224]}],
    ),
    "items": text("The items of this page."),
    "intent": text("What is meant, where the registry would otherwise refuse."),
    "job": text("The id of a job.", pattern=ID),
    "Artifact.job": text("The job that compiled it; null for a pushed artifact.", pattern=ID),
    "RequestStatus.job": text("The open job that a compile request would join.", pattern=ID),
    "WorkerInfo.job": text("The job that it compiles now.", pattern=ID),
    "Claim.job": text("Claim this job only.", pattern=ID),
    "jobs": text("The changed jobs, without their places in the queue."),
    "WatchJobs.jobs": text("The known version of each job, by its id.", maxProperties=limits.MAX_WATCHED),
    "key": text("The facts that must match exactly."),
    "kinds": text("For each lane: jobs that the same workers can compile."),
    "kind": text("`gpu`, or `ref` for the reference target, which runs on any CPU.", of=TARGET_KIND),
    "JobFailure.kind": text(
        "`permanent`: it fails each time. `transient`: another attempt can succeed. `poison`: it ended workers.",
        of=FAILURE_KIND,
    ),
    "last_at": text("When it was requested last."),
    "latency_ms": text("One run of the program on the host that compiled it. In milliseconds."),
    "lease": text("The lease; null if there was no job."),
    "libraries": text("The libraries that the program calls.", items=LIBRARY),
    "log": text("New text of the log.", maxLength=limits.MAX_LOG_BYTES),
    "manifest": text("The files and their blobs."),
    "Artifact.manifest": text("The files and their blobs.", of=Manifest),
    "match": text("How well the artifact matches.", of=Match),
    "RequestStatus.match": text("How well the artifact matches; empty without one."),
    "message": text("What went wrong.", maxLength=limits.MAX_MESSAGE_LENGTH),
    "migraphx": text("The version of MIGraphX, MAJOR.MINOR.", pattern=VERSION, examples=["2.15"]),
    "HostToolchain.migraphx": text("The full version of MIGraphX.", examples=["2.15.0"]),
    "NamespaceDefaults.allow": text("`rocm`: requests accept another minor release of ROCm, from 10 on."),
    "NamespaceDefaults.migraphx": text("The version of MIGraphX of a request that states none."),
    "migraphx_build": text("The build of MIGraphX: a git hash or a package."),
    "migraphx_patch": text("The full version of MIGraphX.", pattern=PATCH, examples=["2.15.0"]),
    "missing": text("The sha256 of each blob to upload.", items={"pattern": whole(SHA256)}),
    "model": text("The identity of the model.", pattern=whole(MODEL), examples=[f"sha256:{SHA}"]),
    "Artifact.model": text(
        "`verified`: a worker compiled the program from the bytes of the model. `claimed`: its publisher says so.",
        of=MODEL_EVIDENCE,
    ),
    "Publish.model": text("What the publisher says about the model."),
    "Lease.model": text("The files of the model."),
    "model_name": text("What the model is called: a label that identifies nothing."),
    "more": text("There are programs that were not even read."),
    "name": text("The name.", minLength=1),
    "File.name": text("The name of the file: a relative path.", **FILE_NAME, examples=["model.mxr"]),
    "ModelClaim.name": text("The name of the ONNX file.", **FILE_NAME),
    "RegisterModel.name": text("What to call the model: a label.", **FILE_NAME),
    "Model.name": text("What the model is called: a label."),
    "RegisterModel.model": text(
        "The identity that the files must have; without it, any. The reply has it.", pattern=whole(MODEL)
    ),
    "RegisterModel.inputs": text(
        "The inputs, as far as they are known; those in the ONNX file count.", maxItems=limits.MAX_MODEL_INPUTS
    ),
    "ModelInput.name": text("The name of the input."),
    "HostTarget.name": text("The name of the GPU."),
    "JobFailure.name": text("The name of the failure in the table of `mxr explain`.", maxLength=limits.MAX_WORD_LENGTH),
    "RegisterWorker.name": text("A name that stays the same after a restart.", minLength=1, maxLength=200),
    "CreateToken.name": text("The person or the service.", pattern=f"^{access.NAME.pattern}$", examples=["ci"]),
    "Principal.name": text("The person or the service, or `local`."),
    "Token.name": text("The person or the service.", examples=["ci"]),
    "namespace": text("The namespace that its requests work in.", examples=["default"]),
    "nearest": text("The artifacts with the fewest differences at that time.", items=DIFFERENCES),
    "next": text("Pass it as `after` to get the next page; null on the last page."),
    "node": count("The number of the GPU in the kernel's topology."),
    "noted": count("How many artifacts were recorded; the registry no longer has the others."),
    "num_cu": count(BY_NAME["num_cu"].about, 1, 65_536, examples=[304]),
    "offload_copy": text(BY_NAME["offload_copy"].about),
    "ok": text("True."),
    "oldest_seconds": seconds("The age of the oldest queued job, or 0."),
    "onnx": text("The name of the ONNX file in the manifest.", **FILE_NAME),
    "options": text("Other compile options of MIGraphX that change the program.", maxProperties=limits.MAX_VARIABLES),
    "origin": text("`built`: a worker of the registry compiled it. `pushed`: a client published it.", of=ORIGIN),
    "ort": text("The ONNX Runtime whose files it can record."),
    "partition": text("The partition mode of the GPU."),
    "phase": text("What the worker does at the moment.", maxLength=limits.MAX_PHASE_LENGTH),
    "place": count("The position in the queue; 1 is the next job to be claimed.", 1),
    "pools": text("For each declared pool: the jobs that it can compile."),
    "precision": text(
        "`fp32`, or reduced precisions joined by `+` in the order applied.",
        pattern=f"^(fp32|({'|'.join(target.PRECISIONS)})(\\+({'|'.join(target.PRECISIONS)}))*)$",
        examples=["fp16"],
    ),
    "priority": count("Jobs with a higher priority are claimed first.", -100, 100),
    "problem": text("Why the request is ambiguous or invalid."),
    "promoted_at": text("When it was promoted last; null if it never was."),
    "provenance": text("What the publisher or the worker says about how it was made; nobody verified it."),
    "published_at": text("When it was published first."),
    "queued": count("Queued jobs."),
    "restore": text("The artifact was removed, and is published again all the same."),
    "restored_at": text("The last time when the artifact was published again after somebody removed it."),
    "restored_by": text("Who published it again then."),
    "real_arch": text(BY_NAME["real_arch"].about, pattern=whole(target.BASE_ARCH)),
    "HostTarget.real_arch": text(BY_NAME["real_arch"].about),
    "relaxed": text("The constraints that the request allowed to differ."),
    "render_minor": count("The number of its device `/dev/dri/renderD...`."),
    "request": text("What the compiled program must satisfy."),
    "RecordedMiss.request": text("The request: complete, or partial."),
    "requests": text("The requests.", maxItems=limits.MAX_SURVEYED),
    "require_worker": text("Answer 409 `no_worker` if no live worker and no declared pool can compile it."),
    "revoked_at": text("When it was revoked; null: it was not."),
    "retry": text("Forget the remembered failures of this key first."),
    "rocm": text("The version of ROCm (or DTK), MAJOR.MINOR.", pattern=VERSION, examples=["7.2"]),
    "HostToolchain.rocm": text("The full version of ROCm (or DTK).", examples=["7.2.1"]),
    "NamespaceDefaults.rocm": text("The version of ROCm of a request that states none."),
    "rocm_patch": text("The full version of ROCm (or DTK).", pattern=PATCH, examples=["7.2.1"]),
    "running": count("Running jobs."),
    "scopes": text("What it allows.", items=SCOPE, minItems=1),
    "secret": text("The token. It is shown only in this reply.", pattern=f"^{access.TOKEN.pattern}$"),
    "seconds": seconds("What is left of the lease without another heartbeat."),
    "seen_at": text("When its last message came."),
    "serve": text("Which artifacts the namespace lets answer requests.", of=SERVE_RULE),
    "sha256": text("The sha256 of the bytes in lower-case hex.", pattern=whole(SHA256), examples=[SHA]),
    "Artifact.sha256": text("The sha256 of the file, or of the canonical list of several.", pattern=whole(SHA256)),
    "size": count("The size in bytes.", examples=[102_400]),
    "Blob.size": count("The size in bytes.", 1, examples=[102_400]),
    "sources": text("Who states each fact of key and attributes: reader, worker or publisher."),
    "sramecc": text("The setting of sramecc, for archs that have one.", of=FEATURE),
    "Attributes.sramecc": text("The setting of sramecc that the program needs.", of=NEEDED_FEATURE),
    "standings": text("The status of each request, in the same order."),
    "started_at": text("When a worker claimed it first."),
    "state": text("The state.", of=JOB_STATE),
    "Token.state": text("Only a valid token is accepted.", of=TOKEN_STATE),
    "WorkerInfo.state": text("`lost`: it was not heard of for too long. `left`: it signed off.", of=WORKER_STATE),
    "target": count("The index of the chosen target in `can.targets`."),
    "targets": text("The GPUs, or the reference target.", minItems=1, maxItems=limits.MAX_TARGETS),
    "token": text("The token without its secret."),
    "Principal.token": text("The id of the token.", pattern=f"^{access.TOKEN_ID.pattern}$"),
    "toolchain": text("The software that compiles."),
    "total": count("How many there are; the reply has the first 50."),
    "tuning": text("How thoroughly MIGraphX tunes the program.", of=TUNING),
    "type": text("The element type."),
    "unique_id": text("The id of the physical GPU; its partitions have the same."),
    "updated_at": text("When it changed last."),
    "urls": text(
        "The URL of each file by its name. One that begins with `/` is a path on the registry.",
        examples=[{"model.mxr": f"/v1/artifacts/{SHA}/files/model.mxr"}],
    ),
    "used_at": text("When it was used last."),
    "uses": text("What was used.", maxItems=limits.MAX_USES),
    "v": count("The version of the form.", 1, 1),
    "Key.v": count("The version of the form.", KEY_VERSION, KEY_VERSION),
    "varies": text("The facts in which the ways differ, each with its number of values."),
    "vendor": text("The vendor of the GPU.", of=VENDOR),
    "version": count("It increases with each change; a long poll waits for a larger one."),
    "OrtRuntime.version": text("The version of ONNX Runtime.", pattern=whole(RUNTIME_VERSION), examples=["1.27.1"]),
    "vram": count("The memory in bytes."),
    "wait": seconds("How long the registry waits with its reply.", maximum=60),
    "waiting_for": text("The worker that a queued job needs, if none can compile it."),
    "worker": text("The name of the worker."),
    "Claim.worker": text("The id of the worker.", pattern=ID),
    "xnack": text("The setting of xnack, for archs that have one.", of=FEATURE),
    "Attributes.xnack": text("The setting of xnack that the program needs.", of=NEEDED_FEATURE),
}
"""By `field`, or by `Message.field`. `of`: the type, where the dataclass has a plain mapping or text. `items`: what is
said of each element."""

EXAMPLE_KEY = Key(
    f"sha256:{SHA}", "gpu", "2.15", (("x", (1, 3, 224, 224)),), arch="gfx942", rocm="7.2", precision=("fp16",)
).to_json()
CLASSES["Key"] = {"examples": [EXAMPLE_KEY]}
CLASSES["Request"] = {"examples": [{"key": EXAMPLE_KEY, "constraints": {"num_cu": 304}}]}
CLASSES["CompileRequest"] = {"examples": [{"key": EXAMPLE_KEY, "constraints": {"num_cu": 304}, "priority": 10}]}


def facts_of(owner: str, field: str) -> Facts:
    """Return what is known of a field. Raises `KeyError` for a field without a description."""
    return FACTS.get(f"{owner}.{field}") or FACTS[field]
