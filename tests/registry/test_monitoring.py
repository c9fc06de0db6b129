"""The rules and the dashboard of the chart: Prometheus takes them, each alert fires, and each metric is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.programs import run as run_program
from paths import ROOT
from registry.registry_client import RegistryUnderTest
from servers import debian

FILES = ROOT / "deploy" / "helm" / "mxr" / "files"
RULES, DASHBOARD = FILES / "alerts.yaml", FILES / "dashboard.json"
PAGE = ROOT / "docs" / "operate.md"
METRIC = re.compile(r"\b(?:mxr|process)_[a-z_]+\b")
LANE = 'kind="gpu",vendor="amd",arch="gfx908",migraphx="2.15",rocm="7.2"'
HERE = 'instance="a",job="mxr"'
RUNNING = {f"mxr_build_info{{{HERE}}}": "1x6000"}
RUN = "mxr_fleet_last_run_timestamp_seconds"
DAY = 1440

Series = dict[str, str]
CASES: dict[str, tuple[Series, int]] = {
    "MxrRegistryAbsent": ({}, 10),
    "MxrRegistryRestarts": ({f"process_start_time_seconds{{{HERE}}}": "0+60x60"}, 40),
    "MxrErrors": (
        {
            'mxr_http_requests_total{route="GET /v1/jobs",status="500"}': "0+6x60",
            'mxr_http_requests_total{route="GET /v1/jobs",status="200"}': "0+60x60",
            'mxr_http_requests_total{route="GET /v1/locks",status="500"}': "0+1x60",
            'mxr_http_requests_total{route="GET /v1/locks",status="200"}': "0+60x60",
        },
        30,
    ),
    "MxrResolveSlow": (
        {
            'mxr_http_request_seconds_bucket{route="POST /v1/resolve",le="1"}': "0+90x60",
            'mxr_http_request_seconds_bucket{route="POST /v1/resolve",le="2.5"}': "0+100x60",
            'mxr_http_request_seconds_bucket{route="POST /v1/resolve",le="+Inf"}': "0+100x60",
        },
        30,
    ),
    "MxrPartAway": ({'mxr_up{part="database",instance="a"}': "1x60", 'mxr_up{part="store",instance="b"}': "0x60"}, 10),
    "MxrDiskFull": ({'mxr_free_bytes{part="store"}': "90e9-100e6x600"}, 500),
    "MxrQueueOld": ({f"mxr_fleet_queue_oldest_seconds{{{LANE},{HERE}}}": "0+60x120"}, 100),
    "MxrNoWorker": ({f"mxr_fleet_unserved_jobs{{{LANE},{HERE}}}": "2x60"}, 30),
    "MxrWorkerLost": ({'mxr_fleet_workers{state="lost",arch="gfx908",migraphx="2.15.0",rocm="7.2.1"}': "1x60"}, 30),
    "MxrCompilesFail": ({'mxr_compiles_total{arch="gfx908",outcome="failed"}': "0x10 2x60"}, 40),
    "MxrBytesLost": ({'mxr_fleet_artifacts{state="lost"}': "0x10 1x60"}, 30),
    "MxrSweepOld": ({f'{RUN}{{run="sweep"}}': "0x6000"}, 3 * DAY),
    "MxrBackupOld": ({f'{RUN}{{run="backup"}}': "0x6000"}, 3 * DAY),
    "MxrCheckOld": ({f'{RUN}{{run="fsck"}}': "-4000000x6000"}, DAY),
    "MxrTokenExpires": ({'mxr_fleet_tokens_expiring{within="7d"}': "1x60"}, 10),
    "MxrCertificateExpires": ({f"mxr_certificate_expiry_timestamp_seconds{{{HERE}}}": "900000x60"}, 10),
    "MxrRefuses": ({'mxr_refused_requests_total{limit="places"}': "0+30x60"}, 30),
}


def promtool(*words: object) -> str:
    done = run_program([debian.program("promtool", "prometheus"), *map(str, words)])
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout + done.stderr)


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def unit_test(fires: str, series: Series, minutes: int) -> dict[str, Any]:
    """One test of promtool: of all rules, exactly this one fires at that time, and none at the beginning."""
    known = {} if fires == "MxrRegistryAbsent" else RUNNING
    expression = 'group by (alertname) (ALERTS{alertstate="firing"})'
    fired = [{"labels": f'{{alertname="{fires}"}}', "value": 1}]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in {**known, **series}.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": f"{minutes}m", "exp_samples": fired}],
    }


def test_prometheus_takes_the_rules_and_each_fires_alone(tmp_path: Path) -> None:
    assert [each["alert"] for each in alerts()] == list(CASES)
    assert f"{len(CASES)} rules found" in promtool("check", "rules", RULES)
    tests = [unit_test(name, *case) for name, case in CASES.items()]
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "tests.yaml")


@pytest.fixture(scope="module")
def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def test_each_metric_of_rules_and_dashboard_is_described_and_there(
    server: RegistryUnderTest, panels: list[dict[str, Any]]
) -> None:
    expressions = [each["expr"] for each in alerts()]
    expressions += [target["expr"] for panel in panels for target in panel["targets"]]
    used = {name for expression in expressions for name in METRIC.findall(expression)}
    assert len(used) > 20
    text = server.get("/metrics").data.decode()
    served = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    told = set(re.findall(r"`((?:mxr|process)_[a-z_*]*[a-z*])`", PAGE.read_text()))
    for name in used:
        family = re.sub(r"_bucket$", "", name)
        assert family in served, name
        assert family in told or "process_*" in told, name
    # And the page describes no other.
    assert {name for name in told if name.startswith("mxr_")} <= served
    assert {name for name in served if name.startswith("mxr_")} <= told


def test_what_all_registries_say_alike_is_taken_once(panels: list[dict[str, Any]]) -> None:
    expressions = [each["expr"] for each in alerts()]
    expressions += [target["expr"] for panel in panels for target in panel["targets"]]
    for expression in expressions:
        for name in re.findall(r"(?<!\()\bmxr_fleet_\w+", expression):
            pytest.fail(f"{name} is summed over the registries: {expression}")
        assert not re.search(r"sum( by \([^)]*\))? \(\s*mxr_fleet", expression), expression


def test_the_dashboard_is_one(panels: list[dict[str, Any]]) -> None:
    """There is no Grafana in Debian or the package index: these are the fields that it needs to load a file."""
    document = json.loads(DASHBOARD.read_text())
    assert document["uid"] == "mxr-registry" and document["schemaVersion"] >= 36
    (source,) = document["templating"]["list"]
    assert source["type"] == "datasource" and source["query"] == "prometheus"
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["type"] in ("stat", "timeseries", "bargauge", "table") and panel["description"]
        assert panel["datasource"] == {"type": "prometheus", "uid": f"${{{source['name']}}}"}
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEF"[: len(panel["targets"])])
