"""Many threads that want one program: `crowd.py MODEL FOLDER COUNT`, a cache each; prints the sha256 that each got."""

from __future__ import annotations

import os
import sys
import threading
from hashlib import sha256
from pathlib import Path

from mxr.cache.store import Cache
from mxr.client.registry import Client
from mxr.host_facts import Host
from mxr.protocol import jobs as job_protocol
from mxr.request.builder import RequestOptions
from mxr.settings import load_settings
from mxr.workflows import compile as compile_workflow
from mxr.workflows import fetch as fetch_workflow
from mxr.workflows.preparation import prepare


def fetch(model: str, folder: Path) -> str:
    """The sha256 of the bytes that one of them got."""
    cache, client = Cache(folder), Client(load_settings(os.environ))
    options = RequestOptions(kind="ref", migraphx="2.15", batch=4, consumer="python")
    asked = prepare(options, model, cache, lambda: client, Host())
    wanted = compile_workflow.CompileOrder(
        job_protocol.CompileRequest(asked.request.key, asked.request.constraints, require_worker=True), asked.model
    )
    job = compile_workflow.request_compile(client, wanted)
    for progress in compile_workflow.follow(client, job):
        job = progress.job
    found = fetch_workflow.fetch_compiled(compile_workflow.outcome(client, job), asked.request, cache, client)
    return sha256(found.path.read_bytes()).hexdigest()


def main(model: str, folder: str, count: str) -> None:
    """Let all of them run at once."""
    lines: list[str] = []

    def run(number: int) -> None:
        try:
            lines.append(fetch(model, Path(folder, str(number))))
        except Exception as problem:
            lines.append(f"{type(problem).__name__}: {problem}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(int(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
