"""Tests for :mod:`trioperator.cli.run_options`: what the options of the command mean for the operator."""

from __future__ import annotations

from trioperator import OperatorSettings
from trioperator.cli.controls import CLIControls
from trioperator.cli.run_options import RunOptions, make_operator_options


def test_priorities_are_passed_on() -> None:
    options = make_operator_options(RunOptions(priority=5), CLIControls())
    assert options["priority"] == 5
    options = make_operator_options(RunOptions(priority=5, dev=True), CLIControls())
    assert options["priority"] == 666


def test_a_lease_sets_the_leadership_in_a_copy_of_the_settings() -> None:
    given = OperatorSettings()
    options = RunOptions(lease="ns/it", shards=3)
    settings = make_operator_options(options, CLIControls(settings=given))["settings"]
    assert settings is not None
    leadership = settings.leadership
    assert (leadership.enabled, leadership.namespace, leadership.name, leadership.shards) == (True, "ns", "it", 3)
    assert not given.leadership.enabled


def test_settings_of_a_program_are_used_as_they_are() -> None:
    given = OperatorSettings()
    assert make_operator_options(RunOptions(), CLIControls(settings=given))["settings"] is given
