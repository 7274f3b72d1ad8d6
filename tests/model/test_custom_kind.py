"""Tests for :mod:`trioperator._model.custom_kind`."""

from __future__ import annotations

import pytest

from trioperator._model.custom_kind import KindInfo, find_kind, get_kind, set_kind

INFO = KindInfo(group="example.com", version="v1", kind="Thing", plural="things", singular="thing")


def test_a_kind_is_that_of_the_class_itself() -> None:
    class Thing:
        pass

    class Derived(Thing):
        pass

    assert find_kind(Thing) is None
    set_kind(Thing, INFO)
    assert get_kind(Thing) is INFO
    assert (INFO.key, INFO.api_version, str(INFO)) == (
        ("example.com", "things", "v1"),
        "example.com/v1",
        "things.v1.example.com",
    )
    assert find_kind(Derived) is find_kind(Thing()) is find_kind("things") is None
    with pytest.raises(TypeError, match="Derived declares no kind"):
        get_kind(Derived)
