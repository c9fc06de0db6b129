"""The time from the end of a compile until a waiting client has the program.

    python bench/bench_handover.py [--rounds 20]

`mxr fetch --on-miss wait` waits as a process. This script acts as the worker, over HTTP, with a program that a real
MIGraphX compiled and that is uploaded before the measurement. The measurement begins when the worker reports the job as
finished (the registry then reads, checks and publishes the program) and ends when the file is complete in the place
that `-o` names; it includes the transfer of a few KiB. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from registry_process import registry, token_for, variable

from mxr import Settings
from mxr.artifact.manifest import Manifest
from mxr.client import transfer
from mxr.client.registry import Client
from mxr.client.worker import WorkerClient
from mxr.host_facts import HostTarget, HostToolchain
from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol import capabilities
from mxr.protocol import jobs as job_protocol
from mxr.workflows.push import split_program

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MODEL = EXAMPLES / "models" / "convnet.onnx"
PROGRAM = EXAMPLES / "ref" / "convnet-b4-fp32.mxr"


def one(worker: WorkerClient, credential: str, url: str, folder: Path, number: int) -> float:
    """The milliseconds of one round. A compile variable makes the key of each round unique."""
    home = folder / f"host{number}"
    output = home / "model.mxr"
    home.mkdir()
    command = [str(Path(sys.executable).parent / "mxr"), "fetch", str(MODEL), "--kind", "ref", "--migraphx", "2.16"]
    command += ["--batch", "4", "--for", "python", "--env", f"MIGRAPHX_MLIR_TUNE_LIMIT={number}", "--on-miss", "wait"]
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("MXR_", "PYTHONDONT"))}
    environ |= {"HOME": str(home), "MXR_CACHE_DIR": str(home / "cache"), "MXR_REGISTRY": url} | variable(url)
    client = subprocess.Popen(
        [*command, "-o", str(output)], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    lease = None
    while lease is None:
        lease = worker.claim(job_protocol.Claim(credential, secrets.token_urlsafe(32), wait=20))
    file = split_program(PROGRAM, "model.mxr")
    transfer.upload(worker.client, PROGRAM, file)
    time.sleep(0.5)  # a real compile takes long enough for the client to be waiting
    made = capabilities.made_by(HostTarget("ref", kind="ref"), HostToolchain(None, "2.16.0"))
    begun = time.perf_counter()
    worker.finish(
        lease.job,
        job_protocol.FinishJob(lease.secret, artifact_protocol.Publish(lease.key, Manifest((file,)), made, {})),
    )
    while not output.exists():
        if client.poll():
            raise SystemExit(client.stderr.read().decode() if client.stderr else "mxr fetch failed")
        time.sleep(0.001)
    spent = (time.perf_counter() - begun) * 1000
    client.wait()
    assert output.stat().st_size == PROGRAM.stat().st_size
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, registry(Path(folder) / "data") as url:
        worker = WorkerClient(Client(Settings(registry=url, token=token_for(url))))
        can = job_protocol.WorkerCapabilities((HostTarget("ref", kind="ref"),), HostToolchain(None, "2.16.0"))
        credential = secrets.token_urlsafe(32)
        worker.register(job_protocol.RegisterWorker("bench", can, credential))
        spent = [one(worker, credential, url, Path(folder), number) for number in range(given.rounds)]
    found = {"p50_ms": round(statistics.median(spent), 1), "most_ms": round(max(spent), 1)}
    print(f"finished compile to complete file: median {found['p50_ms']} ms, maximum {found['most_ms']} ms (limit 300)")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
