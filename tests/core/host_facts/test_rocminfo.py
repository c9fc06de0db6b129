"""The output of rocminfo: the GPU's own ISA is used, never a generic one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxr.host_facts.kfd import Agent, parse_rocminfo

CPU = """\
Agent 1
*******
  Name:                    AMD EPYC 9534 64-Core Processor
  Uuid:                    CPU-XX
  Marketing Name:          AMD EPYC 9534 64-Core Processor
  Node:                    0
  Device Type:             CPU
  Compute Unit:            128
  ISA Info:
"""
GPU = """\
Agent {agent}
*******
  Name:                    {arch}
  Uuid:                    {uuid}
  Marketing Name:          {name}
  Vendor Name:             AMD
  Node:                    {node}
  Device Type:             GPU
  Chip ID:                 29857(0x74a1)
  Compute Unit:            {units}
  SIMDs per CU:            4
  Internal Node ID:        {node}
  Pool Info:
    Pool 1
      Segment:                 GLOBAL; FLAGS: COARSE GRAINED
  ISA Info:
{isas}*** Done ***
"""
ISA = "    ISA {n}\n      Name:                    amdgcn-amd-amdhsa--{isa}\n      Fast f16:                TRUE\n"
FIELDS = {"agent": 2, "uuid": "GPU-21b6d61638a86f8c", "name": "AMD Instinct MI300X", "node": 2, "units": 304}


def gpu(arch: str, *isas: str, **changes: object) -> str:
    blocks = "".join(ISA.format(n=n, isa=isa) for n, isa in enumerate(isas, 1))
    return GPU.format(arch=arch, isas=blocks, **(FIELDS | changes))


def test_mi300x_with_a_generic_isa_and_its_own() -> None:
    text = CPU + gpu("gfx942", "gfx942:sramecc+:xnack-", "gfx9-4-generic:sramecc+:xnack-")
    assert parse_rocminfo(text) == [
        Agent("gfx942", "+", "-", 304, "AMD Instinct MI300X", 2, "21b6d61638a86f8c"),
    ]


@pytest.mark.parametrize("isas", [("gfx11-generic", "gfx1100"), ("gfx1100", "gfx11-generic"), ("gfx11-generic",)])
def test_a_generic_isa_is_ignored_at_any_position(isas: tuple[str, ...]) -> None:
    (agent,) = parse_rocminfo(gpu("gfx1100", *isas, uuid="GPU-XX", units=96))
    assert (agent.arch, agent.sramecc, agent.xnack, agent.unique_id) == ("gfx1100", None, None, None)


def test_several_gpus_keep_their_order_and_features() -> None:
    text = gpu("gfx90a", "gfx90a:sramecc+:xnack+", node=2) + gpu("gfx906", "gfx906:sramecc-:xnack-", agent=3, node=4)
    found = [(agent.arch, agent.sramecc, agent.xnack, agent.node) for agent in parse_rocminfo(text)]
    assert found == [("gfx90a", "+", "+", 2), ("gfx906", "-", "-", 4)]


def test_output_without_indentation_gives_the_same_agents() -> None:
    text = gpu("gfx942", "gfx942:sramecc+:xnack-", "gfx9-4-generic:sramecc+:xnack-")
    flat = "".join(line.strip() + "  \r\n" for line in text.splitlines())
    assert parse_rocminfo(flat) == parse_rocminfo(text)


def test_features_are_those_of_the_gpus_own_isa() -> None:
    (agent,) = parse_rocminfo(gpu("gfx906", "gfx900:xnack+", "gfx906:sramecc+:xnack-"))
    assert (agent.sramecc, agent.xnack) == ("+", "-")


NO_GPU = [CPU, gpu("gfx9-4-generic"), gpu("gfx000"), gpu("gfx942").replace("GPU\n  Chip", "DSP\n  Chip")]


@pytest.mark.parametrize("text", ["", "ROCk module is NOT loaded", *NO_GPU])
def test_output_without_a_gpu_gives_no_agents(text: str) -> None:
    assert parse_rocminfo(text) == []


@given(st.text(max_size=200), st.integers(0, 900))
def test_damaged_output_never_raises(noise: str, cut: int) -> None:
    whole = CPU + gpu("gfx942", "gfx942:sramecc+:xnack-")
    assert all(agent.arch == "gfx942" for agent in parse_rocminfo(whole[:cut] + noise + whole[cut:]))
