"""What a registry answers is held against the request once more, before a byte moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from strategies import MODEL

from mxr.artifact.attributes import Attributes, Constraints, Request
from mxr.artifact.key import Key
from mxr.artifact.manifest import Blob, File, Manifest, artifact_id
from mxr.artifact.matching import Match
from mxr.artifact.records import Artifact
from mxr.cache.store import Answer
from mxr.client.registry import Client
from mxr.errors import DamagedError, MxrError
from mxr.protocol.artifacts import REGISTRY_HEADER, message_document
from mxr.settings import load_settings
from mxr.util.codec import Timestamp
from mxr.workflows.fetch import check_answer, resolve

KEY = Key(model=MODEL, kind="gpu", arch="gfx90a", migraphx="2.15", rocm="7.2", inputs=(("x", (8, 3)),))
FILE = File("model.mxr", 1, "a" * 64, (Blob("a" * 64, 1),))


def answer(has: Attributes) -> Answer:
    identity = artifact_id(KEY.digest, (FILE,))
    return Answer(
        Artifact(
            identity,
            KEY.digest,
            FILE.sha256,
            1,
            KEY,
            has,
            {},
            Timestamp(0),
            "built",
            "built",
            manifest=Manifest((FILE,)),
        ),
        Match(),
    )


def test_an_answer_that_the_constraints_refuse_is_not_taken() -> None:
    request = Request(KEY, Constraints(sramecc="+", num_cu=104))
    check_answer(request, answer(Attributes(sramecc="+", num_cu=104)))
    for has in (Attributes(sramecc="-", num_cu=104), Attributes(sramecc="+", num_cu=110), Attributes(tuning="cross")):
        with pytest.raises(DamagedError, match="does not match the request"):
            check_answer(request, answer(has))


@contextmanager
def lying_registry(reply: Any, status: int = 200) -> Iterator[Client]:
    """A client of a server that answers every request with this JSON."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer()

        def answer(self) -> None:
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header(REGISTRY_HEADER, "11111111-1111-4111-8111-111111111111")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Client(load_settings({"MXR_TOKEN": "t", "MXR_REGISTRY": f"http://127.0.0.1:{server.server_port}"}))
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("serve", ["any", "built", "promoted", "all", None])
@pytest.mark.parametrize("origin", ["built", "pushed", "trusted"])
@pytest.mark.parametrize("promoted", [None, "2026-11-24T20:33:41Z"])
def test_an_answer_that_its_own_facts_exclude_is_not_taken(
    serve: str | None, origin: str, promoted: str | None
) -> None:
    said = message_document(answer(Attributes()).artifact) | {"serve": serve, "origin": origin, "promoted_at": promoted}
    taken = promoted or serve == "any" or (serve, origin) == ("built", "built")
    # A newer registry may have rules and origins that this client does not know: an unknown rule allows nothing.
    taken = taken and serve in ("any", "built", "promoted")
    with lying_registry({"artifact": said, "match": {}, "urls": {}, "etag": "x"}) as client:
        if taken:
            assert resolve(Request(KEY), client).artifact.answers_requests
        elif serve is not None:
            with pytest.raises(DamagedError, match="its own rule excludes"):
                resolve(Request(KEY), client)
        else:
            with pytest.raises(MxrError, match=r"reply of the registry .* is invalid"):
                resolve(Request(KEY), client)
