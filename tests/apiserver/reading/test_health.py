"""Conformance: the health endpoints are verbose if asked to be."""

from __future__ import annotations

import pytest

from tests.apiserver.conftest import Target
from trioperator.apiserver.reading.health import health_of, is_check


@pytest.mark.parametrize("endpoint", ["healthz", "livez", "readyz"])
async def test_verbose_health_lists_the_checks(target: Target, endpoint: str) -> None:
    answer = await target.get(f"/{endpoint}", verbose="")
    lines = answer.content.splitlines()
    assert lines[:2] == ["[+]ping ok", "[+]log ok"]
    assert "[+]etcd ok" in lines
    assert lines[-1] == f"{endpoint} check passed"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert (await target.get(f"/{endpoint}")).content == "ok"
    assert (await target.get(f"/{endpoint}", exclude="etcd")).content == "ok"
    assert (await target.get(f"/{endpoint}/ping")).content == "ok"
    assert (await target.get(f"/{endpoint}/none")).code == 404


async def test_checks_can_be_excluded(target: Target) -> None:
    answer = await target.get("/livez", verbose="", exclude="etcd")
    assert "[+]etcd excluded: ok" in answer.content.splitlines()
    answer = await target.get("/livez", verbose="", exclude="none")
    warning = 'warn: some health checks cannot be excluded: no matches for "none"'
    assert answer.content.splitlines()[-2:] == [warning, "livez check passed"]


def test_only_readiness_has_some_checks() -> None:
    assert is_check("readyz", "informer-sync")
    assert not is_check("livez", "informer-sync")
    assert "informer-sync" not in health_of("livez", {"verbose": "1"})
