"""Tests for :mod:`trioperator.apiserver.controllers.registry`: controllers are selected by name."""

from __future__ import annotations

import pytest

from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import CONTROLLERS, select_controllers
from trioperator.errors import ConfigError


async def test_unknown_controllers_are_rejected(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"Unknown controller 'podz': choose from all, .*pods"):
        async with cluster.open_controllers("podz"):
            pass


def test_all_selects_every_controller() -> None:
    assert set(select_controllers(["all"])) == set(select_controllers(CONTROLLERS))
    assert select_controllers(["pods", "pods"]) == select_controllers(["pods"])


def test_a_name_may_stand_for_several_controllers() -> None:
    resources = [controller.resource for controller in select_controllers(["workloads", "pods"])]
    assert ("apps", "deployments") in resources
    assert ("batch", "cronjobs") in resources
    assert resources[-1] == ("", "pods")


def test_no_names_select_no_controllers() -> None:
    assert select_controllers([]) == ()
