"""Tests for :mod:`trioperator._webhooks.amendments`: what is repaired when, and what is left to others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from trioperator._webhooks.amendments import CALM, Repairs, StoredConfiguration, inject, list_differences

EXEMPTING = {"matchExpressions": [{"key": "control-plane", "operator": "DoesNotExist"}]}
EVERYWHERE = {"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}


def hook(name: str = "check", **fields: Any) -> dict[str, Any]:
    return {"name": name, "clientConfig": {"url": "https://hooks.test"}, "failurePolicy": "Fail", **fields}


async def repair(repairs: Repairs, stored: list[Any], *, times: int = 1) -> float:
    """Repair whenever it is due; return the seconds that the last repair has waited."""
    waited = 0.0
    for _ in range(times):
        waited = repairs.schedule([hook()], stored) - trio.current_time()
        await trio.sleep(waited)
        repairs.note([hook()], stored)
    return waited


async def test_what_others_change_is_repaired_at_once_and_later_if_it_goes_on(autojump_clock: object) -> None:
    repairs, changed = Repairs(), [[hook(failurePolicy="Ignore")], []]
    assert await repair(repairs, changed[0]) == 0
    for number in range(10):
        waited = await repair(repairs, changed[number % 2])
        assert min(2**number, 30) * 0.75 <= waited <= min(2**number, 30) * 1.25
    await trio.sleep(CALM)
    assert await repair(repairs, changed[0]) == 0


@pytest.mark.parametrize("field", ["namespaceSelector", "aNewField"])
async def test_what_comes_back_and_does_no_harm_is_left_alone_for_a_while(autojump_clock: object, field: str) -> None:
    repairs, amended = Repairs(), [{**hook(), field: EXEMPTING}]
    await repair(repairs, amended, times=3)
    assert not repairs.is_fought(amended)
    assert not repairs.tolerates([hook()], amended)
    await repair(repairs, amended)
    assert repairs.is_fought(amended)
    assert repairs.tolerates([hook()], amended)
    assert await repair(repairs, amended) == CALM
    assert await repair(repairs, [hook(failurePolicy="Ignore")]) == 0  # what another one changes meanwhile
    assert repairs.tolerates([hook()], amended)


@pytest.mark.parametrize(
    "changed",
    [
        [],
        [hook(), hook("more")],
        [hook("other")],
        [hook(rules=[])],
        [hook(clientConfig={"url": "https://evil.test"})],
        [hook(namespaceSelector={"matchLabels": {"reviewed": "yes"}})],
        [hook(namespaceSelector={"matchExpressions": [{"key": "reviewed", "operator": "Exists"}]})],
        [hook(namespaceSelector={"matchExpressions": [EVERYWHERE, *EXEMPTING["matchExpressions"]]})],
    ],
    ids=["none", "more", "others", "rules", "address", "labels", "some-namespaces", "no-namespaces"],
)
async def test_what_comes_back_and_does_harm_is_repaired_all_the_same(
    autojump_clock: object, changed: list[Any]
) -> None:
    repairs = Repairs()
    await repair(repairs, changed, times=60)
    assert repairs.is_fought(changed)
    assert not repairs.tolerates([hook()], changed)
    assert 20 < await repair(repairs, changed) < 40


def stored(*hooks: dict[str, Any], **metadata: Any) -> StoredConfiguration:
    return msgspec.convert({"metadata": metadata, "webhooks": list(hooks)}, StoredConfiguration)


def test_an_injected_ca_is_kept_where_somebody_asked_for_it_and_there_is_no_own_one() -> None:
    injected = hook(clientConfig={"url": "https://hooks.test", "caBundle": "dGhlaXJz"})
    asked = stored(injected, annotations={"service.beta.openshift.io/inject-cabundle": "true"})
    assert inject([hook()], asked) == [injected]
    assert inject([hook("new")], asked) == [hook("new")]
    assert inject([hook()], stored(injected, annotations={"a": "b"})) == [hook()]
    own = hook(clientConfig={"url": "https://hooks.test", "caBundle": "b3du"})
    assert inject([own], asked) == [own]


def test_who_has_changed_a_configuration_is_named() -> None:
    entries = [
        {"manager": "late", "time": "2026-01-02T00:00:00Z"},
        {"manager": "early", "time": "2026-01-01T00:00:00Z"},
    ]
    assert stored(managedFields=entries).manager == "late"
    assert stored(managedFields=[{"manager": "undated"}]).manager == stored().manager == "others"


def test_what_differs_is_told_in_words() -> None:
    assert list_differences([hook(), hook("b")], [hook(timeoutSeconds=1), hook("c")]) == (
        "timeoutSeconds, missing webhooks, further webhooks"
    )
    assert list_differences([hook("a"), hook("b")], [hook("b"), hook("a")]) == "the order"
