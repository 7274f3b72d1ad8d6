"""Tests for :mod:`trioperator.testing.records`."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from trioperator.errors import PermanentError, TemporaryError
from trioperator.testing import Call, LogLine, RecordLog, Write


def call(handler: str = "fn", **fields: Any) -> Call:
    known: dict[str, Any] = {"kind": "Pod", "namespace": "ns", "name": "p", "kwargs": {}, "retry": 0, "started": 0.0}
    return Call(handler=handler, **{**known, **fields})


def test_records_are_selected_by_their_attributes() -> None:
    records: RecordLog[Call] = RecordLog()
    first, second = call("a"), call("b", kwargs={"reason": "create"})
    records.extend([first, second])
    assert records.select() == [first, second]
    assert records.select(handler="b", name="p") == [second]
    assert records.select(reason="create") == [second]
    with pytest.raises(AttributeError, match="nmae"):
        records.select(nmae="p")


@pytest.mark.parametrize(
    ("error", "final", "failed"),
    [
        (None, True, False),
        (TemporaryError("not yet"), False, False),
        (TemporaryError("too often"), True, True),
        (PermanentError("never"), True, True),
        (ValueError("oops"), False, True),
    ],
)
def test_a_call_has_failed_unless_it_asks_to_be_tried_again(
    error: BaseException | None, final: bool, failed: bool
) -> None:
    assert call(error=error, final=final).failed is failed


def test_records_are_shown_by_what_they_are_about() -> None:
    assert str(call()) == "fn for Pod ns/p"
    assert str(call(kind="Node", namespace=None)) == "fn for Node p"
    assert str(call(kind=None, namespace=None, name=None)) == "fn"
    assert str(Write(method="PATCH", path="/api/v1/nodes/n", body=b"", time=0)) == "PATCH /api/v1/nodes/n"
    record = logging.LogRecord("trioperator", logging.WARNING, "f.py", 1, "%s pods", (3,), None)
    line = LogLine.of(record)
    assert (str(line), line.level, line.name) == ("3 pods", "WARNING", None)
