"""The choice of an installer by consumer, and the check for names that cannot be predicted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.rows import for_each

from mxr import consumers
from mxr.errors import UsageError
from mxr.install.installer import Installer, installer_for, installers_with_records
from mxr.install.ort_cache import OrtInstaller
from mxr.install.placement import Destination

ASKED = cast("Any", SimpleNamespace(model=SimpleNamespace(path=None, stem="resnet50")))


@for_each(consumers.CONSUMERS)
def test_each_consumer_has_an_installer(name: str) -> None:
    installer = installer_for(consumers.find_consumer(name))
    assert isinstance(installer, Installer)
    assert isinstance(installer, OrtInstaller) == (name == "ort")


def test_installers_with_records_name_their_folder() -> None:
    assert [each.record_folder for each in installers_with_records()] == [".mxr-names"]


@pytest.mark.parametrize("generation", ["B'", "C", "D"])
def test_a_name_that_only_its_provider_knows_is_refused_before_the_download(generation: str) -> None:
    installer = OrtInstaller()
    with pytest.raises(UsageError, match="resnet50 cannot be predicted") as caught:
        installer.check_unrecorded(ASKED, Destination("o/", consumer_options={"ort": generation}))
    assert "mxr import --ort-cache" in caught.value.hint


@pytest.mark.parametrize("generation", ["A", "B", "1.27.1", "1.99"])
def test_other_generations_pass_the_check(generation: str) -> None:
    # Builds of 1.99 are unknown: the placement itself reports that.
    OrtInstaller().check_unrecorded(ASKED, Destination("o/", consumer_options={"ort": generation}))
