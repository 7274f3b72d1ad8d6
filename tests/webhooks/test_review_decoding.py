"""Tests for :mod:`trioperator._webhooks.review_decoding`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trioperator._webhooks.review_decoding import LARGE, TooManyItemsError, decode_review

FILLING = "x" * LARGE
REVIEWS: list[Any] = [
    {"kind": "ConversionReview", "request": {"uid": "u", "objects": [{"a": 1}, {"b": [{}, None, "\n"]}, 3]}},
    {"request": {"object": {"spec": [1.5]}, "oldObject": None}},
    {"request": {"objects": {"not": "a list"}}},
    {"request": {"objects": None}},
    {"request": ["objects"]},
    {"request": "text"},
    {"a": []},
    [{"request": 1}],
    "text",
]


@pytest.mark.parametrize("review", REVIEWS)
@pytest.mark.parametrize("filling", ["", FILLING])
def test_large_reviews_are_what_they_are_when_decoded_at_once(review: Any, filling: str) -> None:
    sent = {**review, "filling": filling} if isinstance(review, dict) else [review, filling]
    assert decode_review(msgspec.json.encode(sent), max_items=100) == sent


@pytest.mark.parametrize(
    "text",
    [
        '{"request": {"objects": [{"a": 1}, {"b": }], "x": "%s"}}',
        '{"request": {"objects": [{"a": "\\ud800"}], "x": "%s"}}',
        '{"request": {"objects": [{"a": 1}], "x": "%s"}',
        '{"request": {"x": "%s"}} {}',
        '{"request": {"objects": [{"a": NaN}], "x": "%s"}}',
    ],
)
@pytest.mark.parametrize("filling", ["", FILLING])
def test_what_is_no_json_is_refused_whatever_its_size(text: str, filling: str) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        decode_review((text % filling).encode(), max_items=100)


@pytest.mark.parametrize("filling", ["", FILLING])
def test_what_is_nested_too_deeply_is_refused_whatever_its_size(filling: str) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(RecursionError):
        decode_review(f'{{"request": {{"objects": [{deep}], "x": "{filling}"}}}}'.encode(), max_items=1_000_000)


@pytest.mark.parametrize("item", [b"[]", b"{}"])
def test_the_number_of_objects_and_lists_is_limited(item: bytes) -> None:
    assert decode_review(b"[" + b",".join([item] * 9) + b"]", max_items=10) == [msgspec.json.decode(item)] * 9
    with pytest.raises(TooManyItemsError):
        decode_review(b"[" + b",".join([item] * 10) + b"]", max_items=10)


@pytest.mark.parametrize("item", [b'"ab"', b"1.5", b"null"])
def test_the_number_of_values_is_limited(item: bytes) -> None:
    with pytest.raises(TooManyItemsError):
        decode_review(b"[" + item + (b"," + item) * 1_500_001 + b"]", max_items=10)
