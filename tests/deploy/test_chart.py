"""The Helm chart: what it renders to is valid, fits the programs that it starts, and wrong values are refused."""

from __future__ import annotations

import copy
import functools
import json
import re
import shlex
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema_rs
import pytest
import tomllib
import yaml
from harness.programs import BIN
from harness.rows import for_each
from paths import ROOT
from servers import debian

from mxr.configuration.reading import read_service
from mxr_cli.main import mxr
from mxr_registry.config.settings import SCHEMA, RegistrySettings
from mxr_registry.http_server import DRAIN
from mxr_registry.main import program as registry
from mxr_workers.main import program as worker
from mxr_workers.settings import read_settings

CHART = ROOT / "deploy" / "helm" / "mxr"
SCHEMAS = Path(__file__).parent / "schemas"
KUBERNETES = ("1.29", "1.34")
SECRET = {"name": "tokens", "key": "token"}
MI300X = {
    "name": "mi300x",
    "arch": "gfx942",
    "numCu": 304,
    "rocm": "7.2.4",
    "migraphx": "2.15.0",
    "mode": "scaledjob",
    "max": 4,
    "ort": {"generation": "B", "version": "1.23.1"},
}
MI100 = {
    "name": "mi100",
    "arch": "gfx908",
    "rocm": "7.0.2",
    "migraphx": "2.13.0",
    "mode": "deployment",
    "max": 2,
    "cross": True,
    "tag": "rocm7.0.2",
    "resources": {"requests": {"cpu": "4"}, "limits": {"memory": "64Gi"}},
    "tolerations": [{"key": "amd.com/gpu", "operator": "Exists"}],
}
FULL: dict[str, Any] = {
    "replicas": 2,
    "imagePullSecrets": [{"name": "pull"}],
    "database": {"urlSecret": {"name": "database", "key": "url"}},
    "signing": {"keySecret": {"name": "signing", "key": "signing.key"}},
    "store": {"url": "s3://compiled/fleet", "endpoint": "https://s3.example.com", "credentialsSecret": "aws"},
    "tls": {"secretName": "registry-tls"},
    "caSecret": {"name": "ca", "key": "ca.crt"},
    "allowedHosts": ["registry.example.com"],
    "trustedProxies": ["10.0.0.0/8", "192.0.2.7"],
    "settings": {"limits": {"body": "16MiB"}, "s3": {"ca_file": "/run/mxr/ca/ca.crt"}, "serve": {"verbose": True}},
    "workers": {"tokenSecret": SECRET, "keySecret": {"name": "worker", "key": "a.key"}, "pools": [MI300X, MI100]},
    "keda": {"tokenSecret": SECRET},
    "serviceMonitor": {"enabled": True, "tokenSecret": SECRET, "labels": {"release": "prometheus"}},
    "image": {"repository": "images.example.com/mxr-registry", "digest": f"sha256:{'a' * 64}"},
    "autoscaling": {"enabled": True},
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "platform",
    "podLabels": {"team": "ml"},
    "extraEnv": [{"name": "OTEL_SERVICE_NAME", "value": "mxr"}],
    "service": {"type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
    "alerts": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True},
    "backup": {"enabled": True},
    "cacheFill": {"enabled": True, "lock": "{}", "tokenSecret": SECRET},
    "nodeLabels": {"enabled": True},
    "ingress": {"enabled": True, "host": "registry.example.com", "tlsSecretName": "ingress-tls"},
}
SMALL: dict[str, Any] = {
    "plaintext": True,
    "backup": {"enabled": True},
    "workers": {"tokenSecret": SECRET, "pools": [MI100]},
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"mxr": "client"}}}]},
}
VALUES = {"defaults": {}, "small": SMALL, "full": FULL}
Object = dict[str, Any]


def helm() -> Any:
    """The module of Helm."""
    try:
        import helm_python
    except ImportError:
        debian.missing("helm-python-sdk is not installed: no wheel of it fits this machine.")
    return helm_python


def render(values: Object, release: str = "mxr") -> list[Object]:
    """The objects of a release in the namespace `ml`."""
    return copy.deepcopy(rendered(json.dumps(values), release))


@functools.cache
def rendered(values: str, release: str) -> list[Object]:
    """The objects of a release, rendered once for the same values."""
    with helm().Chart.load(CHART) as chart:
        texts = chart.render(json.loads(values), name=release, namespace="ml")
    texts = {name: text for name, text in texts.items() if name.endswith(".yaml")}
    return [each for text in texts.values() for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def refused(values: Object) -> str:
    """The error of a release with these values."""
    with pytest.raises((helm().HelmValuesError, helm().HelmRenderError)) as caught:
        render(values)
    return str(caught.value)


def template(found: Object) -> Object | None:
    """The pod template in an object."""
    spec = found.get("spec", {})
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    pods: Object | None = spec.get("jobTargetRef", spec).get("template")
    return pods


def pods(found: list[Object]) -> Iterator[tuple[str, Object]]:
    """The spec of each pod template, with kind and name of its object."""
    for each in found:
        if pod := template(each):
            yield f"{each['kind']}/{each['metadata']['name']}", pod["spec"]


def containers(found: list[Object]) -> Iterator[tuple[str, Object]]:
    """Each container."""
    for name, spec in pods(found):
        for each in (*spec.get("initContainers", ()), *spec["containers"]):
            yield f"{name}/{each['name']}", each


def one(found: list[Object], kind: str, name: str) -> Object:
    """The one object of this kind and name."""
    (each,) = [each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return each


def check(found: Object, version: str) -> None:
    """Fails unless Kubernetes takes the object. A field that its kind does not have is an error, too."""
    schema = SCHEMAS / f"{found['kind']}.json"
    if schema.exists():
        jsonschema_rs.validate(json.loads(schema.read_text()), found)
        if pod := template(found):
            check({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": pod}, version)
    else:
        # Imported here: every test process collects this module.
        import kubernetes_validate

        kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_kubernetes_takes_every_object(values: Object, version: str) -> None:
    found = render(values)
    for each in found:
        check(each, version)
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(names) == len(set(names))


def test_what_a_platform_team_sets() -> None:
    found = render(FULL)
    registry = one(found, "Deployment", "mxr")
    assert "replicas" not in registry["spec"]
    scaler = one(found, "HorizontalPodAutoscaler", "mxr")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"], scaler["scaleTargetRef"]["name"]) == (2, 6, "mxr")
    pod = registry["spec"]["template"]
    assert pod["metadata"]["labels"]["team"] == "ml" and pod["spec"]["priorityClassName"] == "platform"
    (container,) = pod["spec"]["containers"]
    assert container["image"] == f"images.example.com/mxr-registry@sha256:{'a' * 64}"
    assert {"name": "OTEL_SERVICE_NAME", "value": "mxr"} in container["env"]
    keys = [each["topologyKey"] for each in pod["spec"]["topologySpreadConstraints"]]
    assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    assert one(found, "Service", "mxr")["spec"]["type"] == "LoadBalancer"
    # Without a tag, the version of the chart: `latest` changes under a release.
    small = one(render(SMALL), "Deployment", "mxr")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert small == f"mxr-registry:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}"
    ingress = {"ingress": {"enabled": True, "host": "registry.example.com", "tlsSecretName": "tls"}}
    assert "trustedProxies: give the addresses of the ingress" in refused(ingress)


def test_rules_and_dashboard_are_those_of_the_files() -> None:
    found = render(FULL)
    rule = one(found, "PrometheusRule", "mxr")
    assert rule["spec"] == yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    board = one(found, "ConfigMap", "mxr-dashboard")
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["mxr.json"]) == json.loads((CHART / "files" / "dashboard.json").read_text())
    assert not {"PrometheusRule"} & {each["kind"] for each in render(SMALL)}


def test_the_check_finds_a_field_that_there_is_not() -> None:
    import kubernetes_validate

    for kind, name in (("Deployment", "mxr"), ("ScaledJob", "mxr-mi300x"), ("ServiceMonitor", "mxr")):
        wrong = one(render(FULL), kind, name)
        wrong["spec"]["replica"] = 2
        with pytest.raises((kubernetes_validate.ValidationError, jsonschema_rs.ValidationError)):
            check(wrong, KUBERNETES[0])
    wrong = one(render(FULL), "ScaledJob", "mxr-mi300x")
    wrong["spec"]["jobTargetRef"]["template"]["spec"]["container"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        check(wrong, KUBERNETES[0])


def test_what_the_examples_of_kubernetes_have_is_valid() -> None:
    for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            check(each, KUBERNETES[0])


@pytest.mark.parametrize("values", [SMALL, FULL], ids=["small", "full"])
def test_pods_have_no_more_rights_than_they_need(values: Object) -> None:
    found = render(values)
    for name, spec in pods(found):
        assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False, name
        root = spec["securityContext"]["runAsUser"] == 0
        assert root == (name in ("DaemonSet/mxr-cache", "DaemonSet/mxr-labels")), name
        assert root or spec["securityContext"]["runAsNonRoot"]
        assert ("hostPath" in json.dumps(spec)) == root, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
    for name, each in containers(found):
        context = each["securityContext"]
        assert context["allowPrivilegeEscalation"] is False and context["capabilities"] == {"drop": ["ALL"]}, name
        # A worker writes where its toolchain wants to.
        assert context.get("readOnlyRootFilesystem") or name.endswith("/worker"), name
        # Secrets are files: a variable is in every dump of a pod, and never changes.
        for variable in each.get("env", ()):
            assert not re.search("TOKEN$|PASSWORD|SECRET_ACCESS_KEY|DATABASE_URL$", variable["name"]), variable
            assert "valueFrom" not in variable or "secretKeyRef" not in variable["valueFrom"], variable
        mounted = {mount["name"] for mount in each.get("volumeMounts", ())}
        paths = {mount["mountPath"] for mount in each.get("volumeMounts", ())}
        for variable in each.get("env", ()):
            if str(variable.get("value", "")).startswith("/run/mxr/"):
                assert str(Path(variable["value"]).parent) in paths, variable
        assert mounted <= {volume["name"] for volume in dict(pods(found))[name.rpartition("/")[0]]["volumes"]}, name
    assert not [each for each in found if each["kind"] == "Secret"]


def test_what_runs_the_models_of_others_reaches_the_registry_only() -> None:
    found = render(FULL)
    policy = one(found, "NetworkPolicy", "mxr-clients")["spec"]
    assert policy["policyTypes"] == ["Egress"]
    (where,) = policy["podSelector"]["matchExpressions"]
    components = {spec["labels"]["app.kubernetes.io/component"] for spec in map(labels_of, found) if spec}
    assert set(where["values"]) >= {"worker", "cache", "labels"} & components
    registry_pods, dns = policy["egress"]
    (peer,) = registry_pods["to"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "registry"
    assert registry_pods["ports"] == [{"port": "http"}] and {each["port"] for each in dns["ports"]} == {53}
    more = [{"ipBlock": {"cidr": "10.1.2.3/32"}}]
    wider = one(render(FULL | {"networkPolicy": {"to": more}}), "NetworkPolicy", "mxr-clients")
    assert wider["spec"]["egress"][2:] == [{"to": more}]


def test_the_registry_reaches_what_the_values_name() -> None:
    assert not [each for each in render(FULL) if each["metadata"]["name"] == "mxr-egress"]
    rules = [{"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": [{"port": 5432}]}]
    found = render(FULL | {"networkPolicy": {"registryEgress": rules}})
    policy = one(found, "NetworkPolicy", "mxr-egress")["spec"]
    dns, *others = policy["egress"]
    assert others == rules and {each["port"] for each in dns["ports"]} == {53} and policy["policyTypes"] == ["Egress"]
    (where,) = policy["podSelector"]["matchExpressions"]
    components = {spec["labels"]["app.kubernetes.io/component"] for spec in map(labels_of, found) if spec}
    assert components - {"worker", "cache", "labels"} == set(where["values"])


def test_the_fill_of_a_node_ends_and_keeps_within_its_size() -> None:
    fill = FULL["cacheFill"] | {"timeoutSeconds": 1_000_000 // 2, "size": "3TiB"}
    found = one(render(FULL | {"cacheFill": fill}), "DaemonSet", "mxr-cache")["spec"]["template"]
    (container,) = found["spec"]["initContainers"]
    assert container["command"] == ["timeout", "500000"]
    assert container["args"] == ["mxr", "fetch", "--locked", "/lock/mxr.lock"]
    assert environment(container)["MXR_CACHE_SIZE"] == "3TiB"
    other = one(render(FULL | {"cacheFill": fill | {"lock": "{1}"}}), "DaemonSet", "mxr-cache")["spec"]["template"]
    assert other["metadata"]["annotations"] != found["metadata"]["annotations"], "another lock is fetched at once"


def labels_of(found: Object) -> Any:
    """The metadata of the pods that an object makes; None where it makes none."""
    made = template(found)
    return None if made is None else made["metadata"]


@pytest.mark.process
def test_no_argument_of_the_backup_has_the_password(tmp_path: Path) -> None:
    (container,) = one(render(FULL | {"backup": {"enabled": True}}), "CronJob", "mxr-backup")["spec"]["jobTemplate"][
        "spec"
    ]["template"]["spec"]["containers"]
    recorder = tmp_path / "pg_dump"
    recorder.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "$PGPASSWORD" > "$RECORD"; touch "$BACKUP/mxr.part"\n')
    recorder.chmod(0o755)
    script = container["args"][0].replace("/backup", str(tmp_path)).replace("/run/mxr/database", str(tmp_path))
    for url, expected in (
        (
            "postgresql://mxr:p%40ss%2Fword@db/mxr?sslmode=require",
            ("postgresql://mxr@db/mxr?sslmode=require", "p@ss/word"),
        ),
        ("postgresql://mxr@db/mxr", ("postgresql://mxr@db/mxr", "")),
    ):
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RECORD": str(tmp_path / "record"), "BACKUP": str(tmp_path)}
        (tmp_path / "url").write_text(url)
        subprocess.run([*container["command"], script], env=environ, check=True, timeout=60)
        assert (tmp_path / "record").read_text().splitlines()[2:] == list(expected)
        (dump,) = tmp_path.glob("mxr-*.dump")
        assert dump.stat().st_mode & 0o077 == 0
        dump.unlink()


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_selectors_find_the_pods_that_they_mean(values: Object) -> None:
    found = render(values)
    labels = {}
    for each in found:
        if pod := template(each):
            labels[f"{each['kind']}/{each['metadata']['name']}"] = pod["metadata"]["labels"].items()
            if "selector" in each["spec"]:
                assert each["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    service = one(found, "Service", "mxr")["spec"]["selector"].items()
    assert [name for name, each in labels.items() if service <= each] == ["Deployment/mxr"]
    policy = one(found, "NetworkPolicy", "mxr")["spec"]["podSelector"]["matchLabels"].items()
    assert policy == service
    if values is FULL:
        budget = one(found, "PodDisruptionBudget", "mxr")["spec"]["selector"]["matchLabels"].items()
        assert budget == service
        monitor = one(found, "ServiceMonitor", "mxr")["spec"]["selector"]["matchLabels"].items()
        own = one(found, "Service", "mxr")["metadata"]["labels"].items()
        assert monitor <= own


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_volumes_that_are_mounted_exist(values: Object) -> None:
    for name, spec in pods(render(values)):
        known = {each["name"] for each in spec.get("volumes", ())}
        used = {
            mount["name"]
            for each in (*spec.get("initContainers", ()), *spec["containers"])
            for mount in each.get("volumeMounts", ())
        }
        assert used == known, name


def environment(container: Object) -> dict[str, str]:
    """The variables of a container, with a value for each that comes from elsewhere."""
    elsewhere = {"MXR_DATABASE_URL": "postgresql://mxr:x@db/mxr", "MXR_WORKER_NAME": "node-7"}
    return {each["name"]: each.get("value", elsewhere.get(each["name"], "x")) for each in container["env"]}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_registry_takes_its_settings(values: Object, tmp_path: Path) -> None:
    found = render(values)
    (container,) = one(found, "Deployment", "mxr")["spec"]["template"]["spec"]["containers"]
    text = one(found, "ConfigMap", "mxr")["data"]["registry.toml"]
    (tmp_path / "registry.toml").write_text(text)
    environ = environment(container) | {"MXR_SERVE_DATA": "/data", "HOME": "/data"}
    del environ["MXR_REGISTRY_CONFIG"]
    if values is FULL:
        (tmp_path / "ca.crt").write_text("")
        (tmp_path / "url").write_text("postgresql://mxr:sesame@db/mxr\n")
        environ["MXR_S3_CA_FILE"] = environ["MXR_S3_CA_FILE"].replace("/run/mxr/ca", str(tmp_path))
        environ["MXR_DATABASE_URL_FILE"] = environ["MXR_DATABASE_URL_FILE"].replace("/run/mxr/database", str(tmp_path))
    settings = RegistrySettings.read(environ, file=tmp_path / "registry.toml")
    assert settings.embedded == (values is not FULL)
    assert {"mxr.ml.svc", "mxr"} <= set(settings.allowed_hosts)
    pools = values.get("workers", {}).get("pools", [])
    assert [each.name for each in settings.rules.pools] == [each["name"] for each in pools]
    assert [each["name"] for each in tomllib.loads(text).get("pools", [])] == [each["name"] for each in pools]
    spec = one(found, "Deployment", "mxr")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] > DRAIN + settings.graceful + 10
    if values is FULL:
        assert settings.limits.body == 16 << 20 and settings.verbose and settings.store_url == "s3://compiled/fleet"
        assert settings.trusted_proxies == ("10.0.0.0/8", "192.0.2.7/32") and settings.tls_key is not None
        assert settings.s3.ca_file == tmp_path / "ca.crt"
        assert settings.database_url == "postgresql://mxr:sesame@db/mxr"


def test_pools_of_the_registry_are_what_keda_counts() -> None:
    found = render(FULL)
    for each in found:
        if each["kind"] == "ScaledJob":
            (trigger,) = each["spec"]["triggers"]
            assert trigger["metadata"]["valueLocation"] == "pools.mi300x.queued"
            assert trigger["metadata"]["url"] == "https://mxr.ml.svc:8765/v1/queue"
            assert one(found, "TriggerAuthentication", trigger["authenticationRef"]["name"])
    assert 'name = "mi300x"' in one(found, "ConfigMap", "mxr")["data"]["registry.toml"]
    assert not [each for each in render(SMALL) if each["apiVersion"].startswith("keda")]


def test_workers_run_on_the_nodes_of_their_pool(tmp_path: Path) -> None:
    found = render(FULL)
    scaled = one(found, "ScaledJob", "mxr-mi300x")["spec"]["jobTargetRef"]["template"]["spec"]
    assert scaled["nodeSelector"] == {"mxr.dev/gfx": "gfx942", "mxr.dev/num-cu": "304"}
    deployed = one(found, "Deployment", "mxr-mi100")["spec"]["template"]["spec"]
    assert deployed["nodeSelector"] == {"mxr.dev/gfx": "gfx908"}
    assert deployed["containers"][0]["resources"]["limits"] == {"memory": "64Gi", "amd.com/gpu": 1}
    assert deployed["containers"][0]["image"] == "mxr-worker:rocm7.0.2"
    for spec in (scaled, deployed):
        environ = environment(spec["containers"][0]) | {"HOME": "/data"}
        for name in ("MXR_TOKEN_FILE", "MXR_CA_FILE"):
            environ[name] = str(tmp_path / Path(environ[name]).name)
            Path(environ[name]).touch(0o600)
        settings = read_settings(environ, {})
        assert settings.kinds == ("gpu",) and settings.name == "node-7"
        # The grace period of the pod is longer than that of the worker.
        assert spec["terminationGracePeriodSeconds"] > settings.grace + 30


def test_the_largest_number_of_each_setting_arrives(tmp_path: Path) -> None:
    """Helm reads numbers as floats, and prints a million as 1e+06."""
    numbers: dict[str, dict[str, float]] = {}
    for each in SCHEMA.settings:
        if each.kind in (int, float) and each.path not in ("serve.port",):
            most = each.facts.most
            numbers.setdefault(each.table, {})[each.name] = int(2**50 if most is None else most)
    found = render({**SMALL, "settings": numbers})
    (container,) = one(found, "Deployment", "mxr")["spec"]["template"]["spec"]["containers"]
    environ = environment(container) | {"MXR_SERVE_DATA": "/data", "HOME": "/data"}
    del environ["MXR_REGISTRY_CONFIG"]
    values = read_service(SCHEMA, environ)
    arrived = {table: {name: values.value(f"{table}.{name}") for name in names} for table, names in numbers.items()}
    assert arrived == numbers and max(numbers["limits"].values()) >= 10**6


def commands(found: list[Object]) -> Iterator[list[str]]:
    """Every call of a program of mxr in the containers."""
    entries = {"mxr": "mxr", "mxr-registry": "mxr-registry", "mxr-worker": "mxr-worker"}
    for _, each in containers(found):
        image = re.split("[:@]", each["image"].rpartition("/")[2])[0]
        if "command" not in each and image in entries:
            yield [entries[image], *each.get("args", ["run"] if image == "mxr-worker" else ["serve"])]
        for line in "\n".join(map(str, each.get("args", ()))).splitlines():
            if re.match(r"\s*mxr\S* ", line):
                yield shlex.split(line.split(">")[0])


def test_every_command_exists() -> None:
    found = [*commands(render(FULL)), *commands(render(SMALL))]
    pod = yaml.safe_load((ROOT / "deploy/kubernetes/serving-pod.yaml").read_text())
    found += commands([{"kind": "x", "metadata": {"name": "x"}, "spec": {"template": pod}}])
    for name, *words in found:
        group = {"mxr": mxr, "mxr-registry": registry, "mxr-worker": worker}[name]
        assert isinstance(group, click.Group)
        command = group.get_command(click.Context(group), words[0])
        assert command is not None, words
        command.make_context(words[0], list(words[1:])).close()
    lines = {" ".join(each) for each in found}
    assert {"mxr-registry migrate", "mxr-worker run --once --drain", "mxr host --node-labels"} <= lines


@pytest.mark.process
def test_the_backup_of_an_embedded_registry(tmp_path: Path) -> None:
    """The script of the CronJob, as it is, on other folders."""
    (container,) = one(render(SMALL), "CronJob", "mxr-backup")["spec"]["jobTemplate"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert {"name": "MXR_SERVE_DATA", "value": "/data"} in container["env"]
    data, backup = tmp_path / "data", tmp_path / "backup"
    environ = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(tmp_path), "MXR_SERVE_DATA": str(data)}
    subprocess.run([f"{BIN}/mxr-registry", "migrate"], env=environ, check=True, timeout=60)
    (data / "store" / "blobs").mkdir(parents=True, exist_ok=True)
    backup.mkdir()
    script = container["args"][0].replace("/backup", str(backup))
    for _ in range(2):
        done = subprocess.run(
            [*container["command"], script],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done
    with sqlite3.connect(backup / "registry" / "registry.db") as copied:
        assert copied.execute("SELECT count(*) FROM tokens").fetchone() == (0,)
    copied.close()


@for_each(
    [
        ({"replica": 2}, "additional properties 'replica' not allowed"),
        ({"replicas": "two"}, "at '/replicas': got string, want integer"),
        ({"workers": {"pool": []}}, "at '/workers': additional properties 'pool' not allowed"),
        ({"tls": {"secretName": "tls"}, "plaintext": True}, "at '/plaintext': value must be false"),
        ({"store": {"endpoint": "http://s3:9000"}}, "at '/store/endpoint': value must be ''"),
        ({"store": {"url": "file:///srv"}}, "at '/store/url': 'file:///srv' does not match"),
        ({"settings": {"limit": {}}}, "invalid propertyName 'limit'"),
        ({"settings": {"database": {"url": "postgresql://u:p@h/d"}}}, "at '/settings/database"),
        ({"ingress": {"enabled": True}}, "at '/ingress/"),
        (FULL | {"data": {"existingClaim": "old"}}, "at '/data/existingClaim': value must be ''"),
        (
            FULL | {"cacheFill": {"enabled": True, "lock": "{}", "lockConfigMap": {"name": "x", "key": "mxr.lock"}}},
            "at '/cacheFill/lockConfigMap/name': value must be ''",
        ),
        ({"replicas": 2}, "replicas: SQLite is for one registry. Set database.urlSecret.name"),
        (
            {"database": FULL["database"]},
            "store.url: with PostgreSQL (database.urlSecret.name), the bytes need a bucket",
        ),
        (FULL | {"signing": {}}, "signing.keySecret.name: the registries of one database sign with one key."),
        (FULL | {"tls": {"secretName": ""}}, "tls.secretName: the clients of this chart send tokens"),
        (FULL | {"workers": {"pools": [MI300X]}}, "workers.tokenSecret.name: workers need a token."),
        (FULL | {"keda": {}}, "keda.tokenSecret.name: the pool mi300x scales by the queue"),
        (FULL | {"serviceMonitor": {"enabled": True}}, "serviceMonitor.tokenSecret.name: /metrics needs a token."),
        (FULL | {"cacheFill": {"enabled": True, "lock": "{}"}}, "cacheFill.tokenSecret.name: fetching needs a token."),
        (FULL | {"cacheFill": {"enabled": True, "tokenSecret": SECRET}}, "cacheFill.lock: give the text of a lock"),
        (SMALL | {"workers": {"tokenSecret": SECRET, "pools": [MI100, MI100]}}, "two pools have the name mi100."),
    ]
)
def test_wrong_values_are_refused_by_name(values: Object, said: str) -> None:
    assert said in refused(values)


@pytest.mark.parametrize("arch", ["gfx942:sramecc+:xnack-", "gfx 942", "GFX942", "gfx942/x", "gfx942\n", "gfx9_4", "*"])
def test_an_arch_that_no_label_of_a_node_can_have(arch: str) -> None:
    said = refused(SMALL | {"workers": {"tokenSecret": SECRET, "pools": [MI100 | {"arch": arch}]}})
    assert "at '/workers/pools/0/arch'" in said


def test_generic_arches_are_taken() -> None:
    found = render(SMALL | {"workers": {"tokenSecret": SECRET, "pools": [MI100 | {"arch": "gfx9-4-generic"}]}})
    assert one(found, "Deployment", "mxr-mi100")["spec"]["template"]["spec"]["nodeSelector"] == {
        "mxr.dev/gfx": "gfx9-4-generic"
    }


@pytest.mark.parametrize("release", ["prod", "mxr", "a" * 53])
def test_names_fit_whatever_the_release_is_called(release: str) -> None:
    for each in render(FULL, release):
        assert len(each["metadata"]["name"]) <= 63
        check(each, KUBERNETES[0])


def test_the_values_of_the_page_are_taken() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    values: Object = {}
    for each in blocks:
        values |= yaml.safe_load(each)
        for found in render(values):
            check(found, KUBERNETES[0])
    for name, value in re.findall(r"--set(?:-file)? ([\w.]+)=(\S+)", page):
        *path, last = name.split(".")
        at = values
        for part in path:
            at = at.setdefault(part, {})
        at[last] = {"true": True}.get(value, value)
    assert one(render(values), "DaemonSet", "mxr-cache") and one(render(values), "ScaledJob", "mxr-mi300x")
