"""Prometheus' rules and Grafana's dashboard, by promtool, and by a real Prometheus that watches a real server."""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request

import pytest
import yaml

from conftest import DEPLOY, KEY, ROOT, ask, free_port, read_yaml, tool
from serving import wait_for

RULES, = read_yaml("prometheus/aerie.rules.yml")
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((DEPLOY / "grafana/aerie.json").read_text())
QUERIES = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
METRIC = re.compile(r"\b(?:vllm|aerie):[a-z0-9_]+")
# Only while `aerie ctl canary` tries a setting.
MAY_BE_EMPTY = {"aerie:canary_share"}


def without_variables(query):
    return query.replace("$__rate_interval", "30s").replace("$instance", ".*").replace("$model", ".*")


def promtool(*words):
    told = subprocess.run([tool("promtool"), *words], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def test_the_rules():
    found = promtool("check", "rules", "--lint-fatal", DEPLOY / "prometheus/aerie.rules.yml")
    assert f"{len(ALERTS)} rules found" in found
    assert "SUCCESS" in promtool("test", "rules", DEPLOY / "prometheus/aerie.rules.test.yml")
    tests, = read_yaml("prometheus/aerie.rules.test.yml")
    fired = {one["alertname"] for test in tests["tests"] for one in test["alert_rule_test"] if one["exp_alerts"]}
    assert fired == {rule["alert"] for rule in ALERTS}, "every alert is seen to come"
    told = (ROOT / "docs/scaling/deploy.md").read_text()
    assert not [rule["alert"] for rule in ALERTS if f"`{rule['alert']}`" not in told]


@pytest.mark.parametrize("name", ["prometheus.yml", "kubernetes.yml"])
def test_the_configurations(name, tmp_path, key_file):
    config, = read_yaml(f"prometheus/{name}")
    job, = config["scrape_configs"]
    job["authorization"]["credentials_file"] = str(key_file)
    if name == "kubernetes.yml":
        # Debian's Prometheus is compiled without Kubernetes.
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
        job["static_configs"] = [{"targets": ["127.0.0.1:8000"]}]
        pod = read_yaml("kubernetes/aerie.yaml")[1]["spec"]["template"]
        found = [pod["metadata"]["labels"]["app.kubernetes.io/name"], pod["spec"]["containers"][0]["ports"][0]["name"]]
        assert job["relabel_configs"][0]["regex"] == ";".join(found)
    (tmp_path / name).write_text(yaml.safe_dump(config))
    (tmp_path / "aerie.rules.yml").write_text((DEPLOY / "prometheus/aerie.rules.yml").read_text())
    promtool("check", "config", tmp_path / name)


def test_the_dashboard(tmp_path):
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    # Its queries are PromQL.
    rules = [{"record": f"panel:{number}", "expr": without_variables(query)}
             for number, (_, query) in enumerate(QUERIES)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yml")
    variables = {"$__rate_interval"} | {"$" + one["name"] for one in DASHBOARD["templating"]["list"]}
    assert not {word for _, query in QUERIES for word in re.findall(r"\$\w+", query)} - variables
    sources, = read_yaml("grafana/sources.yaml")
    assert sources["datasources"][0]["url"] == "http://prometheus:9090"


class Prometheus:
    """A real one, with deploy's configuration for a server here."""

    def __init__(self, server, key_file, folder):
        config, = read_yaml("prometheus/prometheus.yml")
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(DEPLOY / "prometheus/aerie.rules.yml")]
        job, = config["scrape_configs"]
        job["authorization"]["credentials_file"] = str(key_file)
        job["static_configs"][0]["targets"] = [f"127.0.0.1:{server.port}"]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process = subprocess.Popen(
            [tool("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={self.url[7:]}", "--log.level=error"])
        wait_for(self._ready, what="Prometheus")

    def _ready(self):
        assert self.process.poll() is None
        try:
            return urllib.request.urlopen(self.url + "/-/ready", timeout=5).status == 200
        except OSError:
            return False

    def get(self, path, **query):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, query):
        return self.get("query", query=query)["result"]


def traffic(server, seconds):
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end or number < 40:
        status, _, text = ask(server.port, body={"prompt": f"one two three {number % 7} " * 20, "max_tokens": 40,
                                                 "ignore_eos": True})
        assert status == 200, text
        number += 1


def test_a_real_server(start, key_file, tmp_path):
    tool("prometheus")
    server = start(["--model=tiny", "--api-key-file=keys", "--speculate=ngram:num_speculative_tokens=4,gate=0",
                    "--holdback=0.5", f"--audit-log={tmp_path}/audit.log", f"--record={tmp_path}/records"],
                   "--no-log-requests")
    prometheus = Prometheus(server, key_file, tmp_path)
    try:
        traffic(server, 6)
        page = ask(server.port, "/metrics")[2]
        named = set(re.findall(r"^# TYPE (\S+) ", page, re.MULTILINE))
        sampled = set(re.findall(r"^([a-z]+:[a-z0-9_]+)", page, re.MULTILINE))
        adapter = (DEPLOY / "prometheus/adapter.yaml").read_text()
        queries = [query for _, query in QUERIES] + [rule["expr"] for rule in ALERTS] + [adapter]
        used = set(METRIC.findall(" ".join(queries)))
        assert len(used) > 25 and used <= sampled | (MAY_BE_EMPTY & named), used - sampled
        ended = time.time()
        wait_for(lambda: any(float(one["value"][1]) > ended for one in prometheus.query(
            "timestamp(vllm:num_requests_running)")), what="a sample of after the last request")
        for title, query in QUERIES:
            values = [one["value"][1] for one in prometheus.query(without_variables(query))]
            assert values or MAY_BE_EMPTY & set(METRIC.findall(query)), f"{title}: {query}"
            assert not {"NaN", "+Inf", "-Inf"} & set(values), f"{title}: {values}"
        rules = prometheus.get("rules")["groups"][0]["rules"]
        assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
        assert len(rules) == len(ALERTS)
        assert KEY not in page
    finally:
        prometheus.process.terminate()
        prometheus.process.wait(30)
