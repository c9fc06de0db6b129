"""What the live workers and declared pools of a namespace can compile, read once for many questions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import bindparam, select

from mxr.artifact.attributes import Constraints
from mxr.artifact.key import TARGET
from mxr.artifact.partial import PartialRequest
from mxr.errors import TooLargeError
from mxr.protocol import capabilities
from mxr.protocol.jobs import WorkerCapabilities
from mxr.util.codec import canonical, encode
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import WorkerRow
from mxr_registry.database.session import Session, now

from . import failures

REGISTERED = WorkerRow.left_at.is_(None)
LIVE_CAPABILITIES = (
    select(WorkerRow.can_json)
    .where(WorkerRow.namespace == bindparam("namespace"), REGISTERED, WorkerRow.seen_at >= bindparam("since"))
    .distinct()
)

MAX_COMPARISONS = 20_000
"""Targets of workers that one request of a client is compared with. Each takes about 40 microseconds."""


class LiveCapabilities:
    """The distinct capabilities of the live workers and declared pools, by the lanes that they can compile.

    `askers`: who asks for a job; None: whoever it is. `chooses`: one of the workers does not take all jobs.
    """

    def __init__(
        self, session: Session, rules: JobRules, namespace: str, askers: Collection[str] | None = None
    ) -> None:
        values = {"namespace": namespace, "since": now(session) - rules.lost_after}
        texts = session.execute(LIVE_CAPABILITIES, values).scalars().all()
        self._by_lane: dict[str, list[WorkerCapabilities]] = {}
        self._comparisons = 0
        self._texts: dict[int, str] = {}
        decoded = [(text, lanes.capabilities_of(text)) for text in texts]
        self._askers = askers
        self.chooses = any(can.trusts is not None for _, can in decoded)
        for text, can in (*decoded, *((canonical(encode(pool.can)), pool.can) for pool in rules.pools)):
            self._texts[id(can)] = text
            for lane in (*lanes.lanes_of(can), *lanes.cross_lanes_of(can)):
                self._by_lane.setdefault(lane, []).append(can)

    def knows(self, lane: str) -> bool:
        """Whether there is a worker or a pool for a lane, whatever a job of it asks for besides."""
        return lane in self._by_lane or lanes.cross_lane(lane) in self._by_lane

    def able(
        self, lane: str, constraints: Constraints, *, trusting: bool = True
    ) -> Iterator[tuple[WorkerCapabilities, capabilities.CompileMethod]]:
        """Yield the capabilities that can compile such a job, and how. `trusting`: only where they take it of who asks.

        Raises `TooLargeError` if all questions together need more than `MAX_COMPARISONS`.
        """
        request = lanes.request_of(lane, constraints)
        candidates = self._by_lane.get(lane, []) + self._by_lane.get(lanes.cross_lane(lane) or "", [])
        for can in {id(candidate): candidate for candidate in candidates}.values():
            if trusting and not can.takes_from(self._askers):
                continue
            self._comparisons += max(1, len(can.targets))
            if self._comparisons > MAX_COMPARISONS:
                raise TooLargeError(
                    "These requests have to be compared with too many different workers.",
                    hint="Send fewer requests at once.",
                )
            method = capabilities.able(can, request)
            if method is not None:
                yield can, method

    def any_natively(self, lane: str, constraints: str, askers: Collection[str] | None) -> bool:
        """Return whether one of them can compile a job of these askers on the GPU itself, not as a cross-compile.

        A claim asks this for the same jobs again and again, so the answers are remembered.
        """
        able = (can for can in self._by_lane.get(lane, []) if can.takes_from(askers))
        methods = (lanes.compile_method(self._texts[id(can)], lane, constraints) for can in able)
        return any(method is not None and not method.cross for method in methods)

    def toolchains_for(self, partial: PartialRequest) -> list[Mapping[str, str]]:
        """Return the toolchains with which a partial request could be compiled, the newest first.

        Raises as `able` does.
        """
        key = lanes.key_of
        found = []
        lanes_ = (lane.replace("*", partial.arch or "*") for lane in self._by_lane)
        for lane in dict.fromkeys(lanes_):
            if "*" in lane or key(lane).form != partial.form:
                continue
            has = key(lane)
            target = ((name, getattr(has, name)) for name in TARGET)
            if all(value is None or getattr(partial, name) in (None, value) for name, value in target) and any(
                self.able(lane, partial.constraints)
            ):
                found.append({"migraphx": has.migraphx} | ({"rocm": has.rocm} if has.rocm else {}))
        versions = {canonical(each): each for each in found}.values()
        return sorted(versions, key=_numbers, reverse=True)

    def able_toolchains(self, lane: str, constraints: Constraints) -> list[Mapping[str, Any]]:
        """Return the toolchains of the workers and pools that can compile such a job. Raises as `able` does."""
        return [json.loads(failures.toolchain_text(can.toolchain)) for can, _ in self.able(lane, constraints)]


def _numbers(toolchain: Mapping[str, str]) -> list[list[int]]:
    return [[int(part) for part in toolchain.get(name, "0").split(".")] for name in ("migraphx", "rocm")]
