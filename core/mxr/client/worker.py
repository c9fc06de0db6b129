"""The requests of a worker: registration, claims, and for each job heartbeats and the result, under its lease."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol import jobs as job_protocol

from .registry import CHECKING, Client


@dataclass(frozen=True, slots=True)
class HeldLease(job_protocol.Lease):
    """A lease with the secret of its claim, which all messages about the job have."""

    secret: str = field(default="", repr=False)


class WorkerClient:
    """The routes of a worker, over the connections of a `Client`. Can be used from several threads.

    Each method for a job raises `ConflictError` when the lease is lost: the job is closed, or another worker has it.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def with_timeout(self, seconds: float) -> WorkerClient:
        """Return a client with its own connection and a timeout of at most `seconds` without a byte received."""
        return WorkerClient(self.client.with_timeout(seconds))

    def register(self, message: job_protocol.RegisterWorker) -> job_protocol.WorkerInfo:
        """Register this worker and its capabilities. The same credential gets the same id again.

        Raises `ConflictError` while another worker is live under this name.
        """
        body = artifact_protocol.message_document(message)
        return self.client.exchange(job_protocol.WorkerInfo, "POST", "/workers", body)

    def leave(self, credential: str) -> None:
        """Signs this worker off. Sent once: without it, the registry notices the missing worker itself."""
        body = artifact_protocol.message_document(job_protocol.SignOff(credential))
        self.client.exchange(job_protocol.WorkerInfo, "POST", "/workers/sign-off", body, once=True)

    def claim(self, claim: job_protocol.Claim) -> HeldLease | None:
        """Claim a job. Returns None after `claim.wait` seconds without one.

        Sent once; the same claim again gets the lease of which the reply was lost. Raises `NotFoundError` when the
        registry does not know this worker.
        """
        body = artifact_protocol.message_document(claim)
        reply = self.client.exchange(job_protocol.ClaimReply, "POST", "/jobs/claim", body, wait=claim.wait, once=True)
        if reply.lease is None:
            return None
        return HeldLease(
            **{row.name: getattr(reply.lease, row.name) for row in fields(reply.lease)}, secret=claim.lease
        )

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

    def hand_back(self, job: str, secret: str) -> job_protocol.Job:
        """Return the job to the queue as if it had never been claimed."""
        return self.client.exchange(
            job_protocol.Job,
            "POST",
            f"/jobs/{job}/handback",
            artifact_protocol.message_document(job_protocol.HandBackJob(secret)),
        )
