"""The scopes of each operation of the API. This table is the only place that says which token may call a route.

A token needs one of the scopes of the operation; `admin` may call each of them. What an operation allows beyond that
(only one's own artifacts, jobs and locks) is checked by the service that it calls.

`Caller` is who sent a request, and what its token allows. All requests with one token share the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mxr.protocol.access import ADMIN, ASK, FETCH, METRICS, PROMOTE, PUBLISH, RECALL, SCOPES, WORK

PUBLIC: tuple[str, ...] = ()
"""Anybody may call it, without a token."""

ANY = tuple(SCOPES)
READ_MODELS = (FETCH, ASK, PUBLISH, WORK)
UPLOAD = (ASK, PUBLISH, WORK)
SEE_WORKERS = (FETCH, ASK, WORK, METRICS)
KEEP_LOCKS = (PUBLISH, PROMOTE)

OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "get_health": PUBLIC,
    "get_readiness": PUBLIC,
    "get_metrics": (METRICS,),
    "get_caller": ANY,
    "create_sign_in_link": ANY,
    "create_token": (ADMIN,),
    "list_tokens": (ADMIN,),
    "revoke_token": (ADMIN,),
    "resolve": (FETCH,),
    "find_candidates": (FETCH,),
    "get_defaults": ANY,
    "list_misses": (FETCH,),
    "list_events": (FETCH,),
    "list_artifacts": (FETCH,),
    "get_artifact": (FETCH,),
    "download_artifact_file": (FETCH,),
    "publish_artifact": (PUBLISH,),
    "promote_artifact": (PROMOTE,),
    "recall_artifact": (RECALL, PUBLISH),
    "end_recall": (PROMOTE,),
    "list_recalls": ANY,
    "list_statements": (FETCH,),
    "add_statement": (PUBLISH, PROMOTE),
    "list_keys": ANY,
    "remove_artifact": (PUBLISH,),
    "list_uses": (FETCH,),
    "report_uses": (FETCH,),
    "list_locks": (FETCH,),
    "get_lock": (FETCH,),
    "put_lock": KEEP_LOCKS,
    "remove_lock": KEEP_LOCKS,
    "list_tags": (FETCH,),
    "get_tag": (FETCH,),
    "list_tag_revisions": (FETCH,),
    "move_tag": (PROMOTE,),
    "remove_tag": (PROMOTE,),
    "list_models": READ_MODELS,
    "get_model": READ_MODELS,
    "register_model": (ASK,),
    "find_missing_blobs": UPLOAD,
    "upload_blob": UPLOAD,
    "download_blob": (FETCH, WORK),
    "request_compile": (ASK,),
    "survey": (ASK,),
    "list_jobs": (ASK,),
    "get_job": (ASK, WORK),
    "get_job_log": (ASK,),
    "follow_job": (ASK,),
    "watch_jobs": (ASK,),
    "cancel_job": (ASK,),
    "claim_job": (WORK,),
    "renew_lease": (WORK,),
    "finish_job": (WORK,),
    "fail_job": (WORK,),
    "hand_back_job": (WORK,),
    "register_worker": (WORK,),
    "sign_off_worker": (WORK,),
    "get_worker": SEE_WORKERS,
    "list_workers": SEE_WORKERS,
    "list_pools": SEE_WORKERS,
    "get_queue": (ASK, WORK, METRICS),
}
"""By operationId. An operation that is not here cannot be added to the application."""


PAGES: Mapping[str, tuple[str, ...]] = {
    "show_sign_in": PUBLIC,
    "sign_in": PUBLIC,
    "sign_in_by_link": PUBLIC,
    "sign_out": PUBLIC,
    "show_home": (FETCH,),
    "show_home_json": (FETCH,),
    "show_explain": (FETCH,),
    "show_explain_json": (FETCH,),
    "explain_pasted": (FETCH,),
    "show_matrix": (FETCH,),
    "show_matrix_json": (FETCH,),
    "show_artifact": (FETCH,),
    "show_artifact_json": (FETCH,),
    "show_jobs": (ASK,),
    "show_jobs_json": (ASK,),
    "show_job": (ASK,),
    "show_job_json": (ASK,),
    "show_job_log": (ASK,),
    "show_fleet": SEE_WORKERS,
    "show_fleet_json": SEE_WORKERS,
}
"""The same for the pages for browsers, which show what the operations answer."""


def scopes_of(operation: str) -> tuple[str, ...]:
    """Return the scopes of which a token needs one; `PUBLIC` where it needs none.

    Raises `KeyError` for an operation that is in no table.
    """
    found = OPERATIONS[operation] if operation in OPERATIONS else PAGES[operation]
    return found if not found or ADMIN in found else (*found, ADMIN)


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal of a request, the namespace that it works in, and its scopes.

    `token`: the id of its token. `expires_at`: when that expires, in seconds since 1970.
    """

    principal: str
    namespace: str
    scopes: frozenset[str]
    token: str
    expires_at: float | None = None

    @property
    def is_admin(self) -> bool:
        """Whether it may do everything."""
        return ADMIN in self.scopes

    @property
    def owner(self) -> str | None:
        """The principal to whose own objects and jobs it is restricted; None for an administrator."""
        return None if self.is_admin else self.principal

    def may(self, scopes: Iterable[str]) -> bool:
        """Whether it has one of these scopes."""
        return not self.scopes.isdisjoint(scopes)
