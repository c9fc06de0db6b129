"""The requests of a worker: registration, claims, and for each job heartbeats and the result, under its lease."""

from __future__ import annotations

from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol import jobs as job_protocol

from .registry import CHECKING, Client


class WorkerClient:
    """The routes of a worker, over the connections of a `Client`. Can be used from several threads.

    Each method for a job raises `ConflictError` when the lease is lost: the job is closed, or another worker has it.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def with_timeout(self, seconds: float) -> WorkerClient:
        """Return a client with its own connection and a timeout of at most `seconds` without a byte received."""
        return WorkerClient(self.client.with_timeout(seconds))

    def register(self, name: str, can: job_protocol.WorkerCapabilities) -> job_protocol.WorkerInfo:
        """Register this worker and its capabilities. The same name gets the same id again."""
        return self.client.exchange(
            job_protocol.WorkerInfo,
            "POST",
            "/workers",
            artifact_protocol.message_document(job_protocol.RegisterWorker(name, can)),
        )

    def leave(self, worker: str) -> None:
        """Signs this worker off. Sent once: without it, the registry notices the missing worker itself."""
        self.client.exchange(job_protocol.WorkerInfo, "DELETE", f"/workers/{worker}", once=True)

    def claim(self, worker: str, *, wait: float = 0, job: str | None = None) -> job_protocol.Lease | None:
        """Claim a job. Returns None after `wait` seconds without one. `job`: claim this one only.

        Sent once: if only the reply to the first request was lost, a second request would claim a second job. Raises
        `NotFoundError` when the registry does not know this worker.
        """
        body = artifact_protocol.message_document(job_protocol.Claim(worker, wait, job))
        return self.client.exchange(job_protocol.ClaimReply, "POST", "/jobs/claim", body, wait=wait, once=True).lease

    def heartbeat(self, job: str, beat: job_protocol.Heartbeat) -> job_protocol.HeartbeatReply:
        """Renew the lease, and report the phase and new log text. Sent once: the next heartbeat follows soon."""
        return self.client.exchange(
            job_protocol.HeartbeatReply,
            "POST",
            f"/jobs/{job}/heartbeat",
            artifact_protocol.message_document(beat),
            once=True,
        )

    def finish(self, job: str, done: job_protocol.FinishJob) -> job_protocol.Job:
        """Publish the result of the job and close it. Sending the same result twice is not an error."""
        return self.client.exchange(
            job_protocol.Job, "POST", f"/jobs/{job}/finish", artifact_protocol.message_document(done), wait=CHECKING
        )

    def fail(self, job: str, failed: job_protocol.FailJob) -> job_protocol.Job:
        """Report that the job failed on this worker."""
        return self.client.exchange(
            job_protocol.Job, "POST", f"/jobs/{job}/fail", artifact_protocol.message_document(failed)
        )

    def hand_back(self, job: str, fence: int) -> job_protocol.Job:
        """Return the job to the queue as if it had never been claimed."""
        return self.client.exchange(
            job_protocol.Job,
            "POST",
            f"/jobs/{job}/handback",
            artifact_protocol.message_document(job_protocol.HandBackJob(fence)),
        )
