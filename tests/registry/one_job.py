"""A worker for one job."""

from __future__ import annotations

import threading
from typing import Any

from registry.registry_client import GFX908, RegistryUnderTest, gpu_capabilities


class OneJob(threading.Thread):
    """A worker that does one job, and keeps how it was before it was claimed."""

    def __init__(self, server: RegistryUnderTest) -> None:
        super().__init__()
        self.server = server
        self.job: Any = None
        self.id = server.register_worker("mi100", gpu_capabilities(rocm="7.1.0"))

    def run(self) -> None:
        """Wait for the job and finish it."""
        while self.job is None:
            self.job = next(iter(self.server.ok("GET", "/v1/jobs?limit=1")["items"]), None)
        self.job = self.server.job(self.job["id"])
        lease = self.server.claim(self.id, wait=30)
        made = {"num_cu": 120, "sramecc": "+", "xnack": "-"}
        self.server.finish(lease, data=GFX908, attributes=made)

    def __enter__(self) -> OneJob:
        """Begin."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self.join(60)
