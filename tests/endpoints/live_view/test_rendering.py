"""Tests for :mod:`trioperator._endpoints.live_view.rendering`: that templates escape, and how times are written."""

from __future__ import annotations

import datetime

import jinja2
import pytest

from trioperator._endpoints.live_view.rendering import ASSETS, Renderer, format_seconds, format_time


def test_everything_is_escaped_and_nothing_is_undefined() -> None:
    text = Renderer().render("problem.html", root="/<x>", page=None, name="<b>", text="<script>alert(1)</script>")
    assert "<b>" not in text
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert '"/%3Cx%3E/"' in text
    with pytest.raises(jinja2.UndefinedError):
        Renderer().render("problem.html", root="", page=None, name="x")


def test_no_template_switches_the_escaping_off() -> None:
    environment = Renderer()._environment
    for name in environment.list_templates():
        assert environment.loader is not None
        source = environment.loader.get_source(environment, name)[0]
        assert "| safe" not in source
        assert "|safe" not in source
        assert "autoescape" not in source
    assert len(environment.list_templates()) > 10


def test_the_live_part_is_a_part_of_the_page() -> None:
    whole, part = (
        Renderer().render("gone.html", root="", page="kinds", live_only=live_only, has_token=False)
        for live_only in (False, True)
    )
    assert part.strip() in whole
    assert "<html" not in part


def test_scripts_do_not_use_what_the_policy_forbids() -> None:
    script = ASSETS["live.js"][0].decode()
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        ".style",
    ):
        assert forbidden not in script


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (0.04, "0.0 s"), (119.9, "119.9 s"), (600, "10 min"), (86400, "24.0 h")]
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text


def test_times_are_in_utc() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert format_time(datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=zone)) == "2026-01-02 01:04:05"
    assert format_time(None) == ""
