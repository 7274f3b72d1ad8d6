"""Lifecycles: the order of handlers, and failures of custom ones."""

from __future__ import annotations

import datetime
import functools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.handling.factory import change_handler
from trioperator import lifecycles
from trioperator._handling.calls.handler_state import HandlerState
from trioperator._handling.handlers.handler import ChangeHandler
from trioperator._handling.handlers.lifecycles import Lifecycle, apply_lifecycle, check_lifecycle
from trioperator._logs import get_logger

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def handlers(count: int = 3) -> list[ChangeHandler]:
    return [change_handler(id=f"h{number}") for number in range(count)]


def chosen(lifecycle: Lifecycle, offered: Sequence[ChangeHandler], *retries: int) -> list[str]:
    counts = retries or (0,) * len(offered)
    state = {h.id: HandlerState(started=NOW, retries=n) for h, n in zip(offered, counts, strict=True)}
    kwargs = {"spec": {"size": 1}, "name": "w"}
    return [h.id for h in apply_lifecycle(lifecycle, offered, state=state, kwargs=kwargs, logger=get_logger("tests"))]


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    """Restore the default lifecycle after a test."""
    yield
    lifecycles.set_default_lifecycle(None)


def test_all_at_once_keeps_the_order_and_is_the_default() -> None:
    assert chosen(lifecycles.all_at_once, handlers()) == ["h0", "h1", "h2"]
    assert lifecycles.get_default_lifecycle() is lifecycles.all_at_once


def test_one_by_one_selects_the_first() -> None:
    assert chosen(lifecycles.one_by_one, handlers()) == ["h0"]


@pytest.mark.parametrize(
    ("retries", "expected"), [((0, 0, 0), ["h0"]), ((1, 0, 0), ["h1"]), ((3, 2, 1), ["h2"]), ((1, 1, 1), ["h0"])]
)
def test_asap_selects_the_handler_with_the_fewest_attempts(retries: tuple[int, ...], expected: list[str]) -> None:
    assert chosen(lifecycles.asap, handlers(), *retries) == expected


def test_random_lifecycles_select_from_all_handlers() -> None:
    many = handlers(20)
    ids = [h.id for h in many]
    assert sorted(chosen(lifecycles.shuffled, many)) == sorted(ids)
    assert {tuple(chosen(lifecycles.shuffled, many)) for _ in range(5)} != {tuple(ids)}
    assert len({tuple(chosen(lifecycles.randomized, many)) for _ in range(50)}) > 1
    assert all(len(chosen(lifecycles.randomized, many)) == 1 for _ in range(5))


@pytest.mark.parametrize(
    "lifecycle",
    [lifecycles.all_at_once, lifecycles.one_by_one, lifecycles.asap, lifecycles.shuffled, lifecycles.randomized],
)
def test_lifecycles_select_nothing_from_nothing(lifecycle: Any) -> None:
    assert list(lifecycle([], state={})) == []


def test_a_custom_lifecycle_declares_any_of_the_arguments() -> None:
    def mine(handlers: Any, state: Any, spec: Any) -> Any:
        return [h for h in reversed(handlers) if state[h.id].retries < spec["size"]]

    assert chosen(mine, handlers(), 0, 1, 0) == ["h2", "h0"]
    assert chosen(lambda handlers: (h for h in handlers), handlers()) == ["h0", "h1", "h2"]
    assert chosen(functools.partial(lambda n, handlers, **_: handlers[:n], 2), handlers()) == ["h0", "h1"]


def test_a_handler_selected_twice_is_called_once() -> None:
    assert chosen(lambda handlers: handlers + handlers, handlers()) == ["h0", "h1", "h2"]


def test_handlers_that_are_not_due_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    foreign = [change_handler(id="foreign"), None]
    assert chosen(lambda handlers: [*foreign, handlers[1]], handlers()) == ["h1"]
    assert "has returned handlers that are not due: Handler 'foreign', None" in caplog.text


@pytest.mark.parametrize("wrong", [lambda handlers: None, lambda handlers: 1 / 0, lambda handlers, nonsense: handlers])
def test_a_lifecycle_that_raises_selects_nothing(wrong: Lifecycle, caplog: pytest.LogCaptureFixture) -> None:
    assert chosen(wrong, handlers()) == []
    assert "<lambda> has failed" in caplog.text


@given(st.lists(st.sampled_from(["h0", "h1", "h2", "other"])))
def test_each_selected_handler_comes_once_in_the_order_of_selection(wanted: list[str]) -> None:
    offered = handlers()
    by_id = {h.id: h for h in offered} | {"other": change_handler(id="other")}
    logging.getLogger("tests").disabled = True
    result = chosen(lambda handlers: [by_id[id] for id in wanted], offered)
    logging.getLogger("tests").disabled = False
    assert result == [id for id in dict.fromkeys(wanted) if id != "other"]


def test_replacing_the_default_lifecycle_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    lifecycles.set_default_lifecycle(lifecycles.asap)
    assert lifecycles.get_default_lifecycle() is lifecycles.asap
    lifecycles.set_default_lifecycle(lifecycles.asap)
    assert caplog.text == ""
    lifecycles.set_default_lifecycle(lifecycles.shuffled)
    assert "The default lifecycle was already set to asap, and is now replaced by shuffled." in caplog.text
    lifecycles.set_default_lifecycle(None)
    assert lifecycles.get_default_lifecycle() is lifecycles.all_at_once


@pytest.mark.parametrize("wrong", ["asap", 5])
def test_a_lifecycle_must_be_a_function(wrong: Any) -> None:
    with pytest.raises(TypeError, match="A lifecycle must be a sync function"):
        check_lifecycle(wrong)


def test_a_lifecycle_must_not_be_async() -> None:
    async def mine(handlers: Any, **_: Any) -> Any: ...

    with pytest.raises(TypeError, match="A lifecycle must be a sync function"):
        lifecycles.set_default_lifecycle(mine)  # type: ignore[arg-type]
