"""Tests for :mod:`trioperator.crds.docstrings`."""

from __future__ import annotations

import dataclasses
import enum

import msgspec

from trioperator.crds.docstrings import describe_class, describe_fields


class Base(msgspec.Struct):
    """A base.

    It has a second
    paragraph.
    """

    size: int
    """The size
    in GiB."""
    plain: int = 0

    def method(self) -> None:
        """Do nothing."""


class Derived(Base):
    more: str = ""
    """What else there is."""


@dataclasses.dataclass
class Undocumented:
    x: int


class Kind(enum.Enum):
    A = "a"


def test_fields_have_the_strings_below_them_also_those_of_base_classes() -> None:
    assert describe_fields(Derived) == {"size": "The size in GiB.", "more": "What else there is."}


def test_paragraphs_of_classes_are_unwrapped() -> None:
    assert describe_class(Base) == "A base.\n\nIt has a second paragraph."


def test_generated_and_inherited_docstrings_describe_nothing() -> None:
    assert [describe_class(cls) for cls in (Derived, Undocumented, Kind)] == [None, None, None]


def test_classes_without_source_have_no_descriptions_of_fields() -> None:
    assert describe_fields(msgspec.defstruct("Made", ["x"])) == {}
