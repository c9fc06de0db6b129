"""What a worker says to the registry: what it can do, and of each job under the number of its lease."""

from __future__ import annotations

from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol import jobs as job_protocol

from .registry import CHECKING, Client


class WorkerClient:
    """The verbs of a worker, over the connections of a `Client`, from several threads at once.

    Each verb about a job raises `Conflict` when the lease is lost: the job is another worker's by then, or closed.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def hurried(self, seconds: float) -> WorkerClient:
        """The same registry over a connection of its own that gives up after so many seconds without a byte."""
        return WorkerClient(self.client.hurried(seconds))

    def register(self, name: str, can: job_protocol.WorkerCapabilities) -> job_protocol.WorkerInfo:
        """Say what this worker can do; the same name keeps its id."""
        return self.client.exchange(
            job_protocol.WorkerInfo,
            "POST",
            "/workers",
            artifact_protocol.document(job_protocol.RegisterWorker(name, can)),
        )

    def leave(self, worker: str) -> None:
        """Sign off: nothing more will be claimed. It is sent once, as the registry finds out by itself too."""
        self.client.exchange(job_protocol.WorkerInfo, "DELETE", f"/workers/{worker}", attempts=1)

    def claim(self, worker: str, *, wait: float = 0, job: str | None = None) -> job_protocol.Lease | None:
        """A job to do, or None after `wait` seconds. Raises `NotFound` where the registry forgot this worker.

        It is sent once: a second one could take a second job, when only the answer to the first was lost.
        """
        asked = artifact_protocol.document(job_protocol.Claim(worker, wait, job))
        return self.client.exchange(job_protocol.ClaimReply, "POST", "/jobs/claim", asked, wait=wait, attempts=1).lease

    def heartbeat(self, job: str, beat: job_protocol.Heartbeat) -> job_protocol.HeartbeatReply:
        """Keep the lease, with the phase and what came to the log. It is sent once: the next one follows soon."""
        return self.client.exchange(
            job_protocol.HeartbeatReply, "POST", f"/jobs/{job}/heartbeat", artifact_protocol.document(beat), attempts=1
        )

    def finish(self, job: str, done: job_protocol.FinishJob) -> job_protocol.Job:
        """Publish what came of the job, and close it. The same once more is fine."""
        return self.client.exchange(
            job_protocol.Job, "POST", f"/jobs/{job}/finish", artifact_protocol.document(done), wait=CHECKING
        )

    def fail(self, job: str, failed: job_protocol.FailJob) -> job_protocol.Job:
        """The job failed here."""
        return self.client.exchange(job_protocol.Job, "POST", f"/jobs/{job}/fail", artifact_protocol.document(failed))

    def hand_back(self, job: str, fence: int) -> job_protocol.Job:
        """Give the job back, as if it had never been claimed."""
        return self.client.exchange(
            job_protocol.Job,
            "POST",
            f"/jobs/{job}/handback",
            artifact_protocol.document(job_protocol.HandBackJob(fence)),
        )
