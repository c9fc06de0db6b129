"""What a registry answers is held against the request once more, before a byte moves."""

from __future__ import annotations

import pytest
from strategies import MODEL

from mxr.artifact.key import Key
from mxr.artifact.manifest import Blob, File, Manifest, artifact_id
from mxr.artifact.matching import Match
from mxr.artifact.qualities import Demands, Qualities, Request
from mxr.artifact.records import Artifact
from mxr.cache.store import Answer
from mxr.errors import Damaged
from mxr.workflows.fetch import check_answer

KEY = Key(model=MODEL, kind="gpu", arch="gfx90a", migraphx="2.15", rocm="7.2", inputs=(("x", (8, 3)),))
FILE = File("model.mxr", 1, "a" * 64, (Blob("a" * 64, 1),))


def answer(has: Qualities) -> Answer:
    identity = artifact_id(KEY.digest, (FILE,))
    return Answer(
        Artifact(identity, KEY.digest, FILE.sha256, 1, KEY, has, {}, 0.0, "built", "built", manifest=Manifest((FILE,))),
        Match(),
    )


def test_an_answer_that_the_demands_refuse_is_not_taken() -> None:
    request = Request(KEY, Demands(sramecc="+", num_cu=104))
    check_answer(request, answer(Qualities(sramecc="+", num_cu=104)))
    for has in (Qualities(sramecc="-", num_cu=104), Qualities(sramecc="+", num_cu=110), Qualities(tuning="cross")):
        with pytest.raises(Damaged, match="does not match the request"):
            check_answer(request, answer(has))
