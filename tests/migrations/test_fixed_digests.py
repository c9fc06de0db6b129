"""The step that gives artifacts the digest for partial requests: the one that the code computes today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hypothesis import given, settings
from strategies import keys

import mxr_migrations
from mxr.artifact.key import Key

STEP = Path(mxr_migrations.__file__).parent / "versions" / "0012_fixed_digests.py"


@given(keys)
@settings(deadline=None)
def test_old_artifacts_get_the_digest_of_new_ones(key: Key) -> None:
    spec = importlib.util.spec_from_file_location("fixed_digests_step", STEP)
    assert spec is not None and spec.loader is not None
    step = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(step)
    assert step._digest(key.canonical) == key.fixed_digest
