"""Settings of the CRDs of kinds that classes declare."""

from __future__ import annotations

from typing import ClassVar

from trioperator.settings.rules import BOOLEAN, COUNT, Section, section, setting


@section
class CrdsSettings(Section):
    """Settings of the CRDs of kinds that classes declare: see docs/settings.md."""

    _path: ClassVar[str] = "settings.crds"

    migrate: bool = setting(False, BOOLEAN)
    """Whether the operator migrates all objects of these kinds to their storage version when it begins to handle
    objects, if any may be stored in another version; default: False."""

    migration_rate: int = setting(100, COUNT)
    """Number of objects that are migrated in a second, at most; default: 100."""
