"""A deployer's program with the client `mxr_api` that openapi-python-client made of the registry's document.

python_client.py round URL FOLDER               publish, resolve, download and compile
python_client.py publish URL FOLDER             ask for one publication
python_client.py ready URL                      ask whether the registry is ready
python_client.py download URL SHA256            download one blob

The result is one JSON document. The environment has the TOKEN. FOLDER has model.onnx, model.mxr and key.json.
"""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import httpx
from mxr_api import AuthenticatedClient as Client
from mxr_api.api.artifacts import download_artifact_file, list_artifacts, promote_artifact, publish_artifact
from mxr_api.api.blobs import download_blob, find_missing_blobs, upload_blob
from mxr_api.api.health import get_readiness
from mxr_api.api.jobs import get_job, get_job_log, request_compile
from mxr_api.api.models import register_model
from mxr_api.api.resolve import resolve
from mxr_api.models import (
    Attributes,
    Blob,
    CompileRequest,
    Constraints,
    Feature,
    File,
    JobState,
    Key,
    Manifest,
    MissingRequest,
    NeededFeature,
    Problem,
    Publish,
    RegisterModel,
    Request,
)
from mxr_api.types import File as Payload


class Round:
    """One registry, and the model and program of a folder."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.onnx, self.mxr = ((folder / f"model.{each}").read_bytes() for each in ("onnx", "mxr"))
        self.key = json.loads((folder / "key.json").read_text())

    def upload(self, name: str, data: bytes) -> Manifest:
        """Send a file that the registry does not have; its manifest."""
        blob = Blob(sha256(data).hexdigest(), len(data))
        if find_missing_blobs.sync(client=self.client, body=MissingRequest([blob])).missing:
            sent = upload_blob.sync(blob.sha256, client=self.client, body=Payload(BytesIO(data)))
            assert sent == blob
        return Manifest([File(name, blob.size, blob.sha256, [blob])])

    def publication(self) -> Publish:
        """The program of the folder."""
        attributes = Attributes(num_cu=120, sramecc=NeededFeature.ON, xnack=NeededFeature.OFF)
        return Publish(Key.from_dict(self.key), self.upload("model.mxr", self.mxr), attributes=attributes)

    def run(self) -> dict[str, object]:
        """Do all that a deployer does, and tell what came of it."""
        request = Request(Key.from_dict(self.key), Constraints(num_cu=120, xnack=Feature.OFF))
        unresolved = resolve.sync(client=self.client, body=request)
        published = publish_artifact.sync_detailed(client=self.client, body=self.publication())
        promote_artifact.sync(published.parsed.id, client=self.client)
        found = resolve.sync(client=self.client, body=request)

        (file,) = found.artifact.manifest.files
        name = (found.artifact.id, file.name)
        part = download_artifact_file.sync_detailed(*name, client=self.client, range_="bytes=1000-1999")
        same = download_artifact_file.sync_detailed(*name, client=self.client, if_none_match=f'"{file.sha256}"')
        whole = download_artifact_file.sync(*name, client=self.client).payload.read()

        registration = RegisterModel("model.onnx", "model.onnx", self.upload("model.onnx", self.onnx))
        registered = [register_model.sync_detailed(client=self.client, body=registration) for _ in range(2)]

        wanted = CompileRequest(Key.from_dict({**self.key, "rocm": "7.1"}), require_worker=True)
        asked = request_compile.sync_detailed(client=self.client, body=wanted)
        job = asked.parsed
        while job.state in (JobState.QUEUED, JobState.RUNNING):
            job = get_job.sync(job.id, client=self.client, wait=60, version=job.version)

        page = list_artifacts.sync(client=self.client, limit=1)
        ids = [each.id for each in page.items]
        while page.next_:
            page = list_artifacts.sync(client=self.client, limit=1, after=page.next_)
            ids += [each.id for each in page.items]
        return {
            "registered": [[each.status_code, each.parsed.model] for each in registered],
            "unresolved": [unresolved.status, unresolved.code],
            "published": published.status_code,
            "resolved": found.artifact.id == published.parsed.id,
            "part": [part.status_code, part.content == self.mxr[1000:2000]],
            "same": [same.status_code, len(same.content)],
            "whole": whole == self.mxr,
            "asked": asked.status_code,
            "job": [job.state, job.artifact],
            "created": job.created_at.timestamp(),
            "log": get_job_log.sync(job.id, client=self.client),
            "ids": ids,
        }


def refusal(reply: object) -> dict[str, object]:
    """The facts of an error by which a program goes on."""
    problem = reply.parsed
    assert isinstance(problem, Problem), reply
    return {
        "status": reply.status_code,
        "code": problem.code,
        "retry": problem.retry,
        "after": reply.headers["Retry-After"],
    }


def main(what: str, url: str, *words: str) -> dict[str, object]:
    """Do one of the four."""
    with Client(
        base_url=url,
        token=os.environ["TOKEN"],
        follow_redirects=True,
        timeout=httpx.Timeout(90),
        raise_on_unexpected_status=True,
    ) as client:
        if what == "round":
            return Round(client, Path(words[0])).run()
        if what == "publish":
            wanted = Round(client, Path(words[0])).publication()
            return refusal(publish_artifact.sync_detailed(client=client, body=wanted))
        if what == "ready":
            return refusal(get_readiness.sync_detailed(client=client))
        try:
            data = download_blob.sync(*words, client=client).payload.read()
        except httpx.TransportError as problem:
            return {"broken": str(problem)}
        return {"sha256": sha256(data).hexdigest()}


sys.stdout.write(json.dumps(main(*sys.argv[1:])))
