"""Runs in the interpreter with the real provider: puts a program into a cache, and opens a session through mxr."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path

import mxr
from mxr.artifact.attributes import Attributes
from mxr.artifact.manifest import Blob, File, Manifest, artifact_id
from mxr.artifact.matching import Match
from mxr.artifact.records import Artifact
from mxr.cache.store import Answer, Cache
from mxr.host_facts import Host
from mxr.settings import load_settings
from mxr.util.codec import Timestamp
from mxr.workflows.preparation import prepare

task = json.load(sys.stdin)
settings = load_settings({"MXR_CACHE_DIR": task["cache"]})
cache = Cache(settings.cache_dir)
said = {"arch": "gfx942:sramecc+:xnack-", "rocm": "7.2", "migraphx": "2.15"}
asked = prepare(mxr.RequestOptions(consumer="ort", **said), task["model"], cache, None, Host())
data = task["program"].encode()
sha = sha256(data).hexdigest()
file = File("model.mxr", len(data), sha, (Blob(sha, len(data)),))
key = asked.request.key
artifact = Artifact(
    id=artifact_id(key.digest, (file,)),
    digest=key.digest,
    sha256=sha,
    size=len(data),
    key=key,
    attributes=Attributes(sramecc="+", xnack="-"),
    provenance={},
    published_at=Timestamp(0),
    origin="built",
    serve="built",
    manifest=Manifest((file,)),
)
cache.imported.store_answer(asked.request, Answer(artifact, Match((), {})))
cache.prepare_file(sha).write_bytes(data)
reply = {}
try:
    session = mxr.ort_session(
        task["model"], folder=task["folder"], settings=settings, offline=True, provider=task.get("provider"), **said
    )
    reply["providers"] = session.get_providers()
except mxr.MxrError as problem:
    reply = problem.to_json()
Path(task["reply"]).write_text(json.dumps(reply))
