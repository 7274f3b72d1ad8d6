"""Progress of handlers: in memory, on objects, and from one to the other."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from tests.runtime.harness import LOGGER, Harness, make_state, patched
from trioperator._handling.calls.handler_state import HandlerState
from trioperator._handling.handlers.handler import ChangeHandler, Reason
from trioperator._model.body import Body
from trioperator._model.patch import Patch
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.progress.states import CauseProgress
from trioperator.errors import ServerError
from trioperator.testing import Fault

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def state(**fields: Any) -> HandlerState:
    return HandlerState(started=NOW, **{"purpose": "create", **fields})


def selected(object: ObjectState) -> list[ChangeHandler]:
    handlers = object.cache.kind.handlers.changes
    return [handler for handler in handlers if handler.reason is Reason.CREATE]


def begin(harness: Harness, object: ObjectState) -> CauseProgress:
    """Begin the progress of the cause that is detected."""
    return harness.progress.begin(object, harness.detect(object).cause, selected(object))


async def test_a_new_cause_begins_with_new_states(harness: Harness) -> None:
    object = await harness.make("a", "b")
    assert harness.progress.get(object) is None
    progress = begin(harness, object)
    assert harness.progress.get(object) is progress
    assert progress.purpose is Reason.CREATE
    assert progress.states.keys() == {"a", "b"}
    assert all(state.retries == 0 and state.purpose == "create" for state in progress.states.values())
    assert not harness.progress.is_due(object)


async def test_a_cause_goes_on_with_its_states_in_memory(harness: Harness) -> None:
    object = await harness.make("a")
    begin(harness, object).move("a", state(retries=2))
    assert begin(harness, object).states["a"].retries == 2


async def test_what_is_not_due_is_not_stored(harness: Harness) -> None:
    object = await harness.make("a")
    begin(harness, object).move("a", state(retries=2))
    await harness.progress.save(object, LOGGER)
    assert harness.patches == 0


async def test_what_was_saved_is_taken_up_by_the_next_operator(harness: Harness) -> None:
    object = await harness.make("a", "b")
    progress = begin(harness, object)
    progress.move("a", state(success=True))
    progress.plan_save(0.0)
    harness.progress.last_handled(object).see(msgspec.json.encode({"spec": {"size": 1}}))
    assert harness.progress.is_due(object)
    await harness.progress.save(object, LOGGER)
    assert not harness.progress.is_due(object)
    assert harness.patches == 1
    assert {"a", "b", "seen-configuration"} <= (await harness.annotations()).keys()

    restarted = make_state(await harness.get(), "a", "b")
    other = Harness(harness.cluster, harness.client, plan=harness.plan, settings=harness.settings)
    states = begin(other, restarted).states
    assert states["a"].success
    assert not states["b"].finished
    assert other.progress.last_handled(restarted).to_store == (b'{"spec":{"size":1}}',)


async def test_what_is_left_of_a_cause_that_is_over_is_taken_up_once_and_found_later(harness: Harness) -> None:
    object = await harness.make("a")
    assert object.body is not None
    assert not harness.progress.take_up(object, Body(object.body))
    begin(harness, object).move("a", state(success=True))
    harness.progress.last_handled(object).see(b'{"spec":{"size":1}}')
    begin(harness, object).plan_save(0.0)
    await harness.progress.save(object, LOGGER)
    later = make_state(body := await harness.get(), "a")
    assert harness.progress.take_up(later, Body(body))
    last_handled = harness.progress.last_handled(later)
    assert last_handled.to_store == (b'{"spec":{"size":1}}',)
    last_handled.record(b"{}", b"{}", finished=False)
    assert harness.progress.take_up(later, Body(body))  # to be removed
    assert not last_handled.to_store


async def test_what_could_not_be_saved_is_still_due(harness: Harness) -> None:
    object = await harness.make("a")
    begin(harness, object).plan_save(7.0)
    harness.plan.add(Fault.status(500), method="PATCH", times=1)
    with pytest.raises(ServerError):
        await harness.progress.save(object, LOGGER)
    progress = harness.progress.get(object)
    assert progress is not None
    assert progress.save_at == 7.0
    await harness.progress.save(object, LOGGER)
    assert progress.save_at is None
    assert "a" in await harness.annotations()


async def test_the_pending_patch_is_stored_by_the_same_request(harness: Harness) -> None:
    object = await harness.make("a")
    begin(harness, object).plan_save(0.0)
    harness.pending.contribute(object, {"spec": {"other": 2}}, (), by="Handler", logger=LOGGER)
    await harness.progress.save(object, LOGGER)
    assert harness.patches == 1
    assert (await harness.get())["spec"] == {"size": 1, "other": 2}


async def test_the_pending_patch_is_stored_without_any_progress(harness: Harness) -> None:
    object = await harness.make()
    harness.pending.contribute(object, {"spec": {"other": 2}}, (), by="Handler", logger=LOGGER)
    await harness.progress.save(object, LOGGER)
    assert (await harness.get())["spec"] == {"size": 1, "other": 2}
    assert await harness.annotations() == {}


async def test_nothing_is_saved_on_an_object_without_a_body(harness: Harness) -> None:
    object = await harness.make("a")
    begin(harness, object).plan_save(0.0)
    object.body = None
    await harness.progress.save(object, LOGGER)
    assert harness.patches == 0
    assert harness.progress.is_due(object)


async def test_another_cause_supersedes_an_unfinished_one(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    object = await harness.make("a")
    progress = begin(harness, object)
    progress.move("a", state(retries=2, delayed=NOW + datetime.timedelta(days=9999)))
    harness.progress.last_handled(object).see(b"{}")
    assert object.body is not None
    object.body = patched(
        dict(object.body), {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/f"]}}
    )
    progress = begin(harness, object)
    assert progress.purpose is Reason.DELETE
    assert (progress.states["a"].retries, progress.states["a"].delayed) == (2, None)
    assert harness.progress.last_handled(object).to_store == ()
    assert caplog.messages == ["Creation is superseded by deletion."]


async def test_handlers_of_one_id_are_reported_once_for_a_cause(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    object = await harness.make("a", "a")
    begin(harness, object)
    begin(harness, object)
    [message] = caplog.messages
    assert message.startswith("2 functions are handlers with the id 'a'")


async def test_a_finished_cause_is_forgotten_but_not_the_last_handled_configuration(harness: Harness) -> None:
    object = await harness.make("a")
    begin(harness, object)
    last_handled = harness.progress.last_handled(object)
    last_handled.see(b"{}")
    harness.progress.finish(object)
    assert harness.progress.get(object) is None
    assert harness.progress.last_handled(object) is last_handled
    assert last_handled.to_store == ()
    harness.progress.finish(object)  # again does no harm


async def test_everything_about_an_object_is_forgotten(harness: Harness) -> None:
    object = await harness.make("a")
    begin(harness, object)
    last_handled = harness.progress.last_handled(object)
    harness.progress.forget(object)
    assert harness.progress.get(object) is None
    assert harness.progress.last_handled(object) is not last_handled


async def test_recalling_needs_no_memory_of_objects_that_were_not_handled(harness: Harness) -> None:
    object = await harness.make("a")
    assert harness.progress.recall(object, {"spec": {}}, b"{}") == {"spec": {}}
    assert harness.progress.recall(object, None, b"{}") is None
    assert harness.progress._last_handled == {}


async def test_a_recorded_configuration_that_somebody_removes_is_recorded_in_memory(harness: Harness) -> None:
    object = await harness.make("a")
    before, after = b'{"spec":{"size":1}}', b'{"spec":{"size":2}}'
    records = Patch()
    harness.progress.record_handled(object, before, records, LOGGER)
    assert "trioperator.dev/last-handled-configuration" in records["metadata"]["annotations"]
    harness.progress.last_handled(object).record(before, before, finished=True)
    assert harness.progress.recall(object, None, before) == {"spec": {"size": 1}}  # it is not there any more
    records = Patch()
    harness.progress.record_handled(object, after, records, LOGGER)
    assert records == {}
    harness.progress.last_handled(object).record(after, after, finished=True)
    assert harness.progress.recall(object, None, after) == {"spec": {"size": 2}}
    harness.progress.confirm(object)
    harness.progress.record_handled(object, after, records, LOGGER)
    assert records


async def test_a_configuration_that_becomes_too_big_is_reported(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    object = await harness.make("a")
    configuration = msgspec.json.encode({"spec": {"text": "x" * 300_000}})
    harness.progress.record_handled(object, configuration, Patch(), LOGGER)
    assert "The last-handled configuration is too big for annotations" in caplog.text


async def test_purging_removes_what_was_stored(harness: Harness) -> None:
    object = await harness.make("a", "b")
    begin(harness, object).plan_save(0.0)
    await harness.progress.save(object, LOGGER)
    records = Patch()
    harness.progress.purge(object, records)
    assert object.body is not None
    assert patched(dict(object.body), records)["metadata"]["annotations"].keys() == {"trioperator.dev/kopf-managed"}
