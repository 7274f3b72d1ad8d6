"""Discovery documents as resources. What is requested, and what happens to groups that are down, is tested with
:mod:`trioperator._kube.discovery`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from trioperator._kube.discovery_documents import Group, GroupVersion, parse_group_version, parse_root


def aggregated(*groups: Any) -> bytes:
    return json.dumps({"kind": "APIGroupDiscoveryList", "items": list(groups)}).encode()


def version(name: str, *plurals: str, **fields: Any) -> dict[str, Any]:
    resources = [{"resource": plural, "responseKind": {"kind": plural.title()}} for plural in plurals]
    return {"version": name, "resources": resources, **fields}


@pytest.mark.parametrize(
    ("group_version", "path"),
    [(GroupVersion("", "v1", True), "/api/v1"), (GroupVersion("apps", "v1", True), "/apis/apps/v1")],
)
def test_a_group_version_knows_the_path_of_its_document(group_version: GroupVersion, path: str) -> None:
    assert group_version.path == path


def test_the_first_version_of_an_aggregated_group_is_preferred() -> None:
    data = aggregated({"metadata": {"name": "g.dev"}, "versions": [version("v2", "kexes"), version("v1", "kexes")]})
    (group,) = parse_root(data, "/apis", None)
    assert [(each.group, each.version, each.preferred) for each in group.resources] == [
        ("g.dev", "v2", True),
        ("g.dev", "v1", False),
    ]
    assert (group.name, group.versions, group.missing) == ("g.dev", ["v2", "v1"], [])


def test_a_stale_version_must_be_requested_and_keeps_what_the_aggregator_remembers() -> None:
    data = aggregated({"metadata": {"name": "g.dev"}, "versions": [version("v1", "kexes", freshness="Stale")]})
    (group,) = parse_root(data, "/apis", None)
    (missing,) = group.missing
    assert group.resources == []
    assert (missing.path, [each.plural for each in missing.stale]) == ("/apis/g.dev/v1", ["kexes"])


def test_only_the_wanted_groups_are_parsed() -> None:
    data = aggregated(
        {"metadata": {"name": "g.dev"}, "versions": [version("v1", "kexes")]},
        {"metadata": {"name": "h.dev"}, "versions": [version("v1", "pods")]},
    )
    (group,) = parse_root(data, "/apis", frozenset({"h.dev"}))
    assert [each.plural for each in group.resources] == ["pods"]


def test_the_versions_of_a_plain_root_must_be_requested() -> None:
    assert parse_root(b'{"versions": ["v1"]}', "/api", None) == [Group("", ["v1"], [], [GroupVersion("", "v1", True)])]
    groups = {"groups": [{"name": "g.dev", "versions": [{"version": "v1"}, {"version": "v2"}]}]}
    (group,) = parse_root(json.dumps(groups).encode(), "/apis", None)
    assert group.missing == [GroupVersion("g.dev", "v1", True), GroupVersion("g.dev", "v2", False)]


def test_the_versions_of_a_plain_group_begin_with_the_preferred_one() -> None:
    versions = [{"version": "v3"}, {"version": "v2"}, {"version": "v1"}]
    groups = {"groups": [{"name": "g.dev", "versions": versions, "preferredVersion": {"version": "v2"}}]}
    (group,) = parse_root(json.dumps(groups).encode(), "/apis", None)
    assert group.versions == ["v2", "v3", "v1"]


def test_subresources_belong_to_their_resource() -> None:
    names = ["pods", "pods/status", "pods/log", "nodes"]
    data = json.dumps({"resources": [{"name": name, "kind": "Kind"} for name in names]}).encode()
    pods, nodes = parse_group_version(data, GroupVersion("", "v1", True))
    assert (pods.plural, pods.subresources) == ("pods", frozenset({"status", "log"}))
    assert (nodes.plural, nodes.subresources) == ("nodes", frozenset())


@pytest.mark.parametrize("data", [b"<html>", b"[]", b'{"groups": 7}'])
def test_a_document_of_another_format_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse_root(data, "/apis", None)
