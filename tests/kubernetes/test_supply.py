"""When pods are asked for: only by plans that want some, and a class without a pool is told once."""

import logging
from unittest.mock import Mock

import pytest
from prefect.exceptions import ObjectNotFound

from tasks.background import supply_shifts
from tasks.background.supply_shifts import Cluster


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """How many pods were asked for, each time."""
    numbers: list[int] = []
    monkeypatch.setattr(supply_shifts, "top_up_pods", lambda client, training, wanted: numbers.append(wanted))
    return numbers


def test_a_class_without_a_cluster_is_never_asked_about_it(asked):
    cluster = Cluster("digits", lambda: 0)
    cluster.top_up(Mock())
    cluster.top_up(Mock(), is_over=True)
    assert asked == []


def test_what_the_plan_wants_now_is_asked_for_and_nothing_at_the_end(asked):
    wanted = iter((2, 0, 3))
    cluster = Cluster("digits", lambda: next(wanted))
    for _ in range(3):
        cluster.top_up(Mock())
    cluster.top_up(Mock(), is_over=True)
    assert asked == [2, 0, 3, 0]


def test_a_plan_that_wants_pods_in_a_class_without_a_pool_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr(supply_shifts, "top_up_pods", Mock(side_effect=ObjectNotFound(Exception("404"))))
    cluster = Cluster("digits", lambda: 4)
    with caplog.at_level(logging.WARNING, "classgan.supply"):
        cluster.top_up(Mock())
        cluster.top_up(Mock())
    [line] = caplog.messages
    assert "asks for 4 pods" in line
    assert "classgan kubernetes pool" in line
