"""Alerts and dashboard ask for metrics that there are, and have the form that Prometheus and Grafana want.

There is no parser of PromQL in Python to rely on: names, labels and brackets are looked at here.
"""

import json
import re
from collections.abc import Iterator

import pytest
import typer
import yaml
from crowd import metrics_in
from prometheus_client import Metric
from typer.testing import CliRunner

from deployments.cli import app
from deployments.monitoring.collector import exposition

WORDS = {"and", "or", "unless", "on", "by", "ignoring", "without", "offset", "bool"}
FUNCTIONS = {"sum", "max", "rate", "increase", "delta", "label_values"}
PROMETHEUS_OWN = {"up": {"job"}, "ALERTS": {"alertstate", "job"}}  # what it adds itself


def expressions() -> Iterator[tuple[str, str]]:
    rules = yaml.safe_load(CliRunner().invoke(app, ["metrics", "rules"]).output)
    for rule in rules["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]
    board = json.loads(CliRunner().invoke(app, ["metrics", "dashboard"]).output)
    for panel in board["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
    yield from (("annotations", a["expr"]) for a in board["annotations"]["list"])


def exported(found: dict[str, Metric]) -> dict[str, set[str]]:
    """Labels by metric, with what Prometheus adds."""
    by_name = {s.name: set(s.labels) | {"instance", "job"} for family in found.values() for s in family.samples}
    return by_name | PROMETHEUS_OWN


def faults(expression: str, known: dict[str, set[str]]) -> list[str]:
    """What is wrong with it: unknown metrics or functions, labels that a metric lacks, brackets."""
    wrong = [f"{a}{b}" for a, b in ("()", "{}", "[]") if expression.count(a) != expression.count(b)]
    for name, matchers in re.findall(r"\b(\w+)\{([^}]*)\}", expression):
        pairs = re.sub(r'(\w+)(=~|!~|!=|=)"[^"]*"', r"\1", matchers)
        wrong += [
            f"{name}: {label}" for label in filter(None, re.split(r"[,\s]+", pairs)) if label not in known.get(name, ())
        ]
    bare = re.sub(r'\{[^}]*\}|\[\d+[smh]\]|"[^"]*"', " ", expression)
    every_label = set().union(*known.values())
    for labels in re.findall(r"\b(?:on|by|ignoring|without)\s*\(([^)]*)\)", bare):
        wrong += [label for label in filter(None, re.split(r"[,\s]+", labels)) if label not in every_label]
    bare = re.sub(r"\b(on|by|ignoring|without)\s*\([^)]*\)", r"\1 ", bare)
    bare = re.sub(r"(label_values\(\s*\w+),\s*\w+", r"\1", bare)
    for word, call in re.findall(r"\b([a-zA-Z_]\w*)(\s*\()?", bare):
        if word not in WORDS and word not in known and not (word in FUNCTIONS and (call or "by" in bare)):
            wrong.append(word)
    return wrong


def test_alerts_and_dashboard_ask_only_for_what_there_is(database, crowd):
    known, asked_for = exported(metrics_in(exposition(database)())), list(expressions())
    assert len(asked_for) > 30
    assert {title: found for title, expression in asked_for if (found := faults(expression, known))} == {}


@pytest.mark.parametrize("wrong", ["classgan_nonsense > 1", "nonsense(classgan_up)", 'classgan_workers{state="online"} == 0', "sum by (nonsense) (classgan_workers)", "(classgan_up == 0"])  # fmt: skip
def test_a_wrong_expression_is_noticed(database, crowd, wrong):
    assert faults(wrong, exported(metrics_in(exposition(database)())))


def test_the_alerts_have_the_form_that_prometheus_wants():
    """As `promtool check rules` would say of their form: fields, names, durations, labels, templates."""
    (group,) = yaml.safe_load(CliRunner().invoke(app, ["metrics", "rules"]).output)["groups"]
    assert set(group) == {"name", "rules"}
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names))
    assert {"NoWorkers", "WorkerGone", "ManyRefused", "TrainingNotMoving", "GpuMemoryTooSmall"} <= set(names)
    for rule in group["rules"]:
        assert (
            {"alert", "expr", "labels", "annotations"} <= set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        )
        assert re.fullmatch(r"[A-Z]\w+", rule["alert"])
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})
        assert set(rule["annotations"]) == {"summary", "description"}
        for text in rule["annotations"].values():
            asked_of = re.findall(r"\{\{ (.*?) \}\}", text)
            assert all(re.fullmatch(r"\$labels\.(worker|training)|\$value( \| humanize\w*)?", a) for a in asked_of), (
                text
            )
            assert not re.search(r"[{}]", re.sub(r"\{\{ .*? \}\}", "", text))
            commands = re.findall(r"`classgan (\w+)", text)
            assert set(commands) <= set(typer.main.get_command(app).commands)


def test_the_dashboard_is_laid_out():
    board = json.loads(CliRunner().invoke(app, ["metrics", "dashboard"]).output)
    ids, places = [], set()
    for panel in board["panels"]:
        ids.append(panel["id"])
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & places, panel["title"]
        places |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
    assert len(ids) == len(set(ids)) > 15
