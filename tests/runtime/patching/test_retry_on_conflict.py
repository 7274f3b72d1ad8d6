"""Functions of patches: applied to the newest state, once, whatever happens to requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.runtime.conftest import widget
from tests.runtime.harness import LOGGER, WIDGETS, Harness
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._model.patch import PatchFn
from trioperator._model.resource import Resource
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.patching.pending import Contribution
from trioperator._runtime.patching.requests import PatchRequests
from trioperator._runtime.patching.retry_on_conflict import PatchFunctions
from trioperator.errors import ConnectionLostError, InvalidError, ServerError
from trioperator.testing import Fault

WITHOUT_STATUS = Resource("example.com", "v1", "widgets", kind="Widget")


def make(parts: Harness, body: Mapping[str, Any], resource: Resource = WIDGETS) -> PatchFunctions:
    return PatchFunctions(PatchRequests(parts.client), Kind(resource, KindHandlers()), body, LOGGER)


def contribute(*fns: PatchFn, by: str = "Handler") -> list[Contribution]:
    return [Contribution(by, {}, fns)]


def increment(body: dict[str, Any]) -> None:
    body["spec"]["size"] += 1


def append(body: dict[str, Any]) -> None:
    body["spec"].setdefault("items", []).append("x")


def set_status(body: dict[str, Any]) -> None:
    body["status"] = {"ready": True}


def set_both(body: dict[str, Any]) -> None:
    increment(body)
    set_status(body)


async def test_functions_are_applied_one_after_another_by_one_request(parts: Harness) -> None:
    functions = make(parts, await parts.cluster.create(widget(size=1)))
    contributions = [*contribute(increment, increment, by="a"), *contribute(append, by="b")]
    await functions.apply(contributions, None)
    assert (await parts.get())["spec"] == {"size": 3, "items": ["x"]}
    assert functions.body == await parts.get()
    assert (contributions, functions.sent, parts.patches) == ([], None, 1)


async def test_functions_that_change_nothing_send_nothing(parts: Harness) -> None:
    functions = make(parts, await parts.cluster.create(widget(size=1)))
    contributions = contribute(lambda body: None)
    await functions.apply(contributions, None)
    assert (contributions, parts.patches) == ([], 0)


async def test_what_a_function_keeps_of_the_body_is_its_own(parts: Harness) -> None:
    kept: list[dict[str, Any]] = []
    body = await parts.cluster.create(widget(size=1))
    functions = make(parts, body)
    await functions.apply(contribute(kept.append, increment), None)
    kept[0]["spec"]["size"] = 100
    assert (body["spec"], functions.body["spec"]) == ({"size": 1}, {"size": 2})


async def test_changes_of_the_status_go_to_its_subresource(parts: Harness) -> None:
    functions = make(parts, await parts.cluster.create(widget(size=1)))
    await functions.apply(contribute(increment, set_status), None)
    body = await parts.get()
    assert (body["spec"], body["status"]) == ({"size": 2}, {"ready": True})
    assert [request.subresource for request in parts.cluster.requests.select(verb="patch")] == ["", "status"]


async def test_all_changes_go_together_where_the_status_is_no_subresource(parts: Harness) -> None:
    functions = make(parts, await parts.cluster.create(widget(size=1)), WITHOUT_STATUS)
    await functions.apply(contribute(increment, set_status), None)
    assert parts.patches == 1


async def test_functions_are_applied_again_after_a_conflict(parts: Harness) -> None:
    body = await parts.cluster.create(widget(size=1))
    await parts.cluster.patch("widgets", "w", {"spec": {"size": 10}})
    functions = make(parts, body)
    await functions.apply(contribute(increment), None)
    assert (await parts.get())["spec"] == {"size": 11}


async def test_a_function_that_fails_is_reported_and_the_others_are_applied(
    parts: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(body: dict[str, Any]) -> None:
        body["spec"]["size"] = 100
        raise ValueError("something")

    def spoil(body: dict[str, Any]) -> None:
        body["spec"]["size"] = object()

    def divide(body: dict[str, Any]) -> None:
        body["spec"]["size"] = float("inf")

    functions = make(parts, await parts.cluster.create(widget(size=1)))
    await functions.apply([*contribute(fail, spoil, divide, by="bad"), *contribute(increment, by="good")], None)
    assert (await parts.get())["spec"] == {"size": 2}
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "ERROR"]
    assert caplog.messages[0] == ("A function in the patch of bad has failed: ValueError('something'): it is dropped.")
    assert "spec.size is inf, which is no number in JSON" in caplog.messages[2]


async def test_a_function_that_fails_is_reported_once_though_it_is_called_again(
    parts: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(body: dict[str, Any]) -> None:
        raise ValueError("something")

    body = await parts.cluster.create(widget(size=1))
    await parts.cluster.patch("widgets", "w", {"spec": {"size": 10}})
    await make(parts, body).apply(contribute(fail, increment), None)
    assert (await parts.get())["spec"] == {"size": 11}
    assert len(caplog.records) == 1


# What goes with functions.


async def test_what_is_to_be_merged_comes_first_and_in_the_same_request(parts: Harness) -> None:
    functions = make(parts, await parts.cluster.create(widget(size=1)))
    contributions = [
        Contribution("a", {"spec": {"size": 5}}, (append,)),
        Contribution("b", {"spec": {"other": 1}}),
        Contribution("c", {"spec": {"size": 7}}, (increment,)),
    ]
    await functions.apply(contributions, None)
    assert (await parts.get())["spec"] == {"size": 8, "other": 1, "items": ["x"]}
    assert (contributions, parts.patches) == ([], 1)


async def test_what_is_to_be_merged_is_merged_again_after_a_conflict(parts: Harness) -> None:
    body = await parts.cluster.create(widget(size=1))
    await parts.cluster.patch("widgets", "w", {"spec": {"size": 10, "others": 1, "gone": 1}})
    functions = make(parts, body)
    await functions.apply([Contribution("a", {"spec": {"size": 5, "gone": None}}, (increment,))], None)
    assert (await parts.get())["spec"] == {"size": 6, "others": 1}


@pytest.mark.parametrize(
    ("fn", "stored"), [(increment, True), (set_status, False), (set_both, False), (lambda body: None, False)]
)
async def test_records_go_with_changes_of_the_object_itself_and_never_before_those_of_the_status(
    fn: PatchFn, stored: bool, parts: Harness
) -> None:
    functions = make(parts, await parts.cluster.create(widget(size=1)))
    await functions.apply(contribute(fn), None, {"metadata": {"annotations": {"note": "x"}}})
    assert ("annotations" in (await parts.get())["metadata"]) is stored


async def test_records_come_after_functions(parts: Harness) -> None:
    functions = make(parts, await parts.cluster.create(widget(size=1)))
    await functions.apply(contribute(increment), None, {"spec": {"size": 100}})
    assert (await parts.get())["spec"] == {"size": 100}


@pytest.mark.parametrize(
    ("patch", "fn", "changed"),
    [
        ({"status": {"a": 1}}, set_status, {"status"}),
        ({"spec": {"a": 1}}, increment, {None}),
        ({"status": {"a": 1}}, increment, {None}),
        ({"spec": {"a": 1}}, lambda body: None, set()),
        ({"status": None}, increment, {None, "status"}),  # it is not for the subresource
    ],
)
async def test_functions_change_subresources_on_top_of_what_is_merged(
    patch: dict[str, Any], fn: PatchFn, changed: set[str | None], parts: Harness
) -> None:
    body = widget(size=1)
    assert make(parts, body).find_changed([Contribution("a", patch, (fn,))]) == changed
    assert make(parts, body, WITHOUT_STATUS).find_changed([Contribution("a", patch, (fn,))]) <= {None, *changed}


# Errors and lost responses.


async def test_a_rejected_change_leaves_nothing_to_resume(parts: Harness) -> None:
    functions = make(parts, await parts.cluster.create(widget(size=1)))
    parts.plan.add(Fault.status(422, message="not so"), method="PATCH", times=1)
    contributions = contribute(increment)
    with pytest.raises(InvalidError):
        await functions.apply(contributions, None)
    assert functions.sent is None
    assert len(contributions) == 1


@pytest.mark.parametrize(
    ("fault", "error"), [(Fault.lose_answer(), ConnectionLostError), (Fault.status(500), ServerError)]
)
async def test_a_change_that_may_be_applied_is_applied_once(
    fault: Fault, error: type[Exception], parts: Harness
) -> None:
    body = await parts.cluster.create(widget(size=1))
    functions = make(parts, body)
    parts.plan.add(fault, method="PATCH", times=1)
    contributions = contribute(increment, append)
    with pytest.raises(error):
        await functions.apply(contributions, None)
    assert functions.sent is not None
    assert len(contributions) == 1

    later = make(parts, await parts.get())
    await later.apply(contributions, functions.sent)
    assert (await parts.get())["spec"] == {"size": 2, "items": ["x"]}
    assert (contributions, later.sent) == ([], None)


async def test_what_is_missing_of_a_change_is_sent_and_the_rest_is_not_repeated(parts: Harness) -> None:
    functions = make(parts, await parts.cluster.create(widget(size=1)))
    parts.plan.add(Fault.status(500), method="PATCH", subresource="status", times=1)
    contributions = contribute(increment, set_status)
    with pytest.raises(ServerError):
        await functions.apply(contributions, None)
    assert functions.sent is not None

    later = make(parts, await parts.get())
    await later.apply(contributions, functions.sent)
    body = await parts.get()
    assert (body["spec"], body["status"]) == ({"size": 2}, {"ready": True})


async def test_a_change_is_applied_once_however_the_object_has_changed_meanwhile(parts: Harness) -> None:
    functions = make(parts, await parts.cluster.create(widget(size=1)))
    parts.plan.add(Fault.lose_answer(), method="PATCH", times=1)
    contributions = contribute(increment)
    with pytest.raises(ConnectionLostError):
        await functions.apply(contributions, None)
    await parts.cluster.patch("widgets", "w", {"metadata": {"labels": {"a": "b"}}, "spec": {"other": 5}})
    later = make(parts, await parts.get())
    await later.apply(contributions, functions.sent)
    assert (await parts.get())["spec"] == {"size": 2, "other": 5}


async def test_a_change_is_applied_once_though_the_newest_state_is_not_known_yet(parts: Harness) -> None:
    body = await parts.cluster.create(widget(size=1))
    functions = make(parts, body)
    parts.plan.add(Fault.lose_answer(), method="PATCH", times=1)
    contributions = [Contribution("a", {"spec": {"other": 1}}, (increment, append))]
    with pytest.raises(ConnectionLostError):
        await functions.apply(contributions, None)
    await make(parts, body).apply(contributions, functions.sent)
    assert (await parts.get())["spec"] == {"size": 2, "items": ["x"], "other": 1}


async def test_after_a_reset_functions_are_applied_again(parts: Harness) -> None:
    functions = make(parts, await parts.cluster.create(widget(size=1)))
    parts.plan.add(Fault.status(500), method="PATCH", times=1)
    contributions = contribute(increment)
    with pytest.raises(ServerError):
        await functions.apply(contributions, None)
    functions.reset(await parts.get())
    assert functions.sent is None
    await functions.apply(contributions, None)
    assert (await parts.get())["spec"] == {"size": 2}
