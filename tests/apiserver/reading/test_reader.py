"""Conformance: lists, pages, selectors, representations, and the semantics of resource versions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import GROUP, TABLE, Answer, Target


async def fill(target: Target, count: int, **content: Any) -> int:
    version = 0
    for at in range(count):
        version = (await target.create("frees", f"n{at}", meta={"labels": {"at": str(at)}}, **content)).version
    return version


def names(content: Any) -> list[str]:
    return [item["metadata"]["name"] for item in content["items"]]


class TestLists:
    async def test_a_list_has_its_kind_and_version(self, target: Target) -> None:
        version = await fill(target, 2)
        content = (await target.get(target.path("frees"))).content
        assert (content["kind"], content["apiVersion"]) == ("FreeList", f"{GROUP}/v1")
        assert int(content["metadata"]["resourceVersion"]) >= version
        assert names(content) == ["n0", "n1"]
        assert content["items"][0]["kind"] == "Free"

    async def test_items_of_builtin_lists_have_no_kind(self, target: Target) -> None:
        await target.create("configmaps", "a", meta={"labels": {"mine": "yes"}})
        content = (await target.get(target.path("configmaps"), labelSelector="mine")).content
        assert "kind" not in content["items"][0]
        assert "apiVersion" not in content["items"][0]

    async def test_the_list_of_a_missing_namespace_is_empty(self, target: Target) -> None:
        answer = await target.get(target.path("frees").replace(target.namespace, "nowhere"))
        assert (answer.code, answer.content["items"]) == (200, [])

    async def test_lists_are_sorted_by_namespace_and_name(self, target: Target) -> None:
        for name in ("b", "a.b", "a", "a-b"):
            await target.create("frees", name)
        assert names((await target.get(target.path("frees"))).content) == ["a", "a-b", "a.b", "b"]

    async def test_missing_objects_are_not_found(self, target: Target) -> None:
        answer = await target.get(target.path("frees", "a"))
        assert (answer.code, answer.reason, answer.message) == (404, "NotFound", f'frees.{GROUP} "a" not found')
        assert answer.content["details"] == {"name": "a", "group": GROUP, "kind": "frees"}


class TestPages:
    async def test_pages_follow_each_other(self, target: Target) -> None:
        await fill(target, 5)
        first = (await target.get(target.path("frees"), limit="2")).content
        assert names(first) == ["n0", "n1"]
        assert first["metadata"]["remainingItemCount"] == 3
        token = first["metadata"]["continue"]
        second = (await target.get(target.path("frees"), limit="2", continue_=token)).content
        assert names(second) == ["n2", "n3"]
        assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        token = second["metadata"]["continue"]
        third = (await target.get(target.path("frees"), limit="2", continue_=token)).content
        assert names(third) == ["n4"]
        assert not third["metadata"].get("continue")

    async def test_later_pages_show_the_state_of_the_first(self, target: Target) -> None:
        await fill(target, 4, spec={"x": 1})
        first = (await target.get(target.path("frees"), limit="1")).content
        await target.merge(target.path("frees", "n1"), {"spec": {"x": 2}})
        await target.delete(target.path("frees", "n2"))
        await target.create("frees", "n22")
        rest = (await target.get(target.path("frees"), continue_=first["metadata"]["continue"])).content
        assert names(rest) == ["n1", "n2", "n3"]
        assert rest["items"][0]["spec"] == {"x": 1}

    async def test_a_page_with_a_selector_does_not_count_the_rest(self, target: Target) -> None:
        await fill(target, 4)
        first = (await target.get(target.path("frees"), limit="1", labelSelector="at notin (0,2)")).content
        assert names(first) == ["n1"]
        assert "remainingItemCount" not in first["metadata"]
        token = first["metadata"]["continue"]
        rest = (await target.get(target.path("frees"), labelSelector="at notin (0,2)", continue_=token)).content
        assert names(rest) == ["n3"]

    @pytest.mark.parametrize(
        "query",
        [
            {"limit": "x"},
            {"continue_": "!"},
            {"timeoutSeconds": "x"},
            {"resourceVersion": "x"},
            {"labelSelector": "a in ("},
            {"labelSelector": "a in b"},
            {"labelSelector": "a=b=c"},
            {"labelSelector": "=b"},
            {"labelSelector": "a b"},
            {"labelSelector": "a>x"},
            {"labelSelector": "-a=b"},
            {"fieldSelector": "spec.x=1"},
            {"fieldSelector": "nonsense"},
        ],
    )
    async def test_invalid_options_are_bad_requests(self, target: Target, query: dict[str, str]) -> None:
        answer = await target.get(target.path("frees"), **query)
        assert (answer.code, answer.reason) == (400, "BadRequest")

    async def test_a_continue_token_excludes_a_resource_version(self, target: Target) -> None:
        await fill(target, 2)
        token = (await target.get(target.path("frees"), limit="1")).content["metadata"]["continue"]
        answer = await target.get(target.path("frees"), continue_=token, resourceVersion="5")
        assert answer.message == "specifying resource version is not allowed when using continue"


class TestVersions:
    async def test_an_exact_version_returns_the_past_state(self, target: Target) -> None:
        version = await fill(target, 2)
        await target.delete(target.path("frees", "n0"))
        query = {"resourceVersion": str(version), "resourceVersionMatch": "Exact"}
        content = (await target.get(target.path("frees"), **query)).content
        assert names(content) == ["n0", "n1"]
        assert content["metadata"]["resourceVersion"] == str(version)

    async def test_not_older_than_returns_the_current_state(self, target: Target) -> None:
        version = await fill(target, 2)
        await target.delete(target.path("frees", "n0"))
        query = {"resourceVersion": str(version + 1), "resourceVersionMatch": "NotOlderThan"}
        assert names((await target.get(target.path("frees"), **query)).content) == ["n1"]

    async def test_a_future_version_times_out(self, target: Target) -> None:
        answer = await target.get(target.path("frees"), resourceVersion="999999999")
        assert (answer.code, answer.reason) == (504, "Timeout")
        assert answer.message.startswith("Timeout: Too large resource version: 999999999, current: ")
        assert answer.content["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"

    @pytest.mark.parametrize(
        ("query", "text"),
        [
            ({"resourceVersionMatch": "Exact"}, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
            (
                {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
                'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            ),
            ({"resourceVersion": "5", "resourceVersionMatch": "Foo"}, 'Unsupported value: "Foo"'),
            (
                {"watch": "1", "sendInitialEvents": "true"},
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            (
                {"watch": "1", "resourceVersionMatch": "NotOlderThan"},
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            (
                {"watch": "1", "sendInitialEvents": "false"},
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            ({"sendInitialEvents": "true"}, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
            (
                {"resourceVersion": "5", "resourceVersionMatch": "Exact", "continue": "x"},
                "resourceVersionMatch is forbidden when continue is provided",
            ),
            (
                {"watch": "1", "resourceVersionMatch": "Exact"},
                "is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless "
                'sendInitialEvents is provided, resourceVersionMatch: Unsupported value: "Exact": supported values: '
                '"NotOlderThan"]',
            ),
        ],
    )
    async def test_invalid_version_matches_are_rejected(self, target: Target, query: dict[str, str], text: str) -> None:
        answer = await target.get(target.path("frees"), **query)
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert text in answer.message

    @pytest.mark.parametrize("version", ["x", "-1", "1.5"])
    async def test_resource_versions_must_be_numbers(self, target: Target, version: str) -> None:
        await target.create("configmaps", "a")
        text = f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
        listed = await target.get(target.path("configmaps"), resourceVersion=version)
        assert (listed.code, listed.message) == (400, f"invalid resource version: {text}")
        for path, query in ((target.path("configmaps"), {"watch": "1"}), (target.path("configmaps", "a"), {})):
            answer = await target.get(path, resourceVersion=version, **query)
            assert (answer.code, answer.message) == (500, text)

    async def test_a_list_of_any_version_is_not_paginated(self, target: Target) -> None:
        await fill(target, 3)

        async def lists_any_version() -> Answer:
            return await target.get(target.path("frees"), limit="1", resourceVersion="0")

        answer = await target.eventually(lists_any_version, lambda answer: names(answer.content) == ["n0", "n1", "n2"])
        assert not answer.content["metadata"].get("continue")

    @pytest.mark.parametrize(("value", "kind"), [("bogus", "ADDED"), ("t", "ADDED"), ("False", None), ("0", None)])
    async def test_every_value_but_false_starts_a_watch(self, target: Target, value: str, kind: str | None) -> None:
        await target.create("configmaps", "a")
        query = {"fieldSelector": "metadata.name=a", "timeoutSeconds": "1"}
        answer = await target.get(target.path("configmaps"), watch=value, **query)
        assert answer.content.get("type") == kind

    async def test_all_kinds_share_one_resource_version_counter(self, target: Target) -> None:
        first = (await target.create("frees", "a")).version
        second = (await target.create("configmaps", "a")).version
        third = (await target.merge(target.path("frees", "a"), {"spec": {"x": 1}})).version
        assert first < second < third


class TestSelectors:
    @pytest.mark.parametrize(
        ("selector", "found"),
        [
            ("spec.hostNetwork=false", ["a"]),
            ("spec.hostNetwork!=false", []),
            ("spec.hostNetwork=", []),
            ("spec.nodeName=", ["a"]),
            ("status.phase!=Running", ["a"]),
            ("metadata.name=a\\,b", []),
            ("metadata.name!=a\\=\\\\", ["a"]),
        ],
    )
    async def test_pods_can_be_selected_by_their_fields(self, target: Target, selector: str, found: list[str]) -> None:
        await target.create("pods", "a", spec={"containers": [{"name": "c", "image": "i"}]})
        assert names((await target.get(target.path("pods"), fieldSelector=selector)).content) == found

    @pytest.mark.parametrize(
        ("base", "selector", "found"),
        [
            ("/api/v1", "source=robot", ["a"]),
            ("/api/v1", "involvedObject.kind=Pod,reason!=Other", ["a"]),
            ("/api/v1", "involvedObject.name=other", []),
            ("/apis/events.k8s.io/v1", "regarding.name=p,type=Normal", ["a"]),
            ("/apis/events.k8s.io/v1", "regarding.kind!=Pod", []),
        ],
    )
    async def test_events_can_be_selected_by_their_fields(
        self, target: Target, base: str, selector: str, found: list[str]
    ) -> None:
        about = {"kind": "Pod", "name": "p", "namespace": target.namespace}
        event = {"metadata": {"name": "a"}, "involvedObject": about, "reason": "Some", "type": "Normal"}
        await target.request("POST", target.path("events"), {**event, "source": {"component": "robot"}})
        path = f"{base}/namespaces/{target.namespace}/events"
        assert names((await target.get(path, fieldSelector=selector)).content) == found

    @pytest.mark.parametrize(
        ("path", "selector", "text"),
        [
            (
                "/api/v1/configmaps",
                "spec.x=1",
                '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
            ),
            (
                "/apis/apps/v1/replicasets",
                "status.replicas=0",
                '"status.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"',
            ),
            ("/api/v1/pods", "spec.x=1", "field label not supported: spec.x"),
            ("/apis/events.k8s.io/v1/events", "source=x", "field label not supported: source"),
            (
                "/apis/events.k8s.io/v1/events",
                "involvedObject.name=x",
                "field label not supported: involvedObject.name",
            ),
            ("/api/v1/pods", "metadata.name=a\\b", "invalid field selector: invalid escape sequence: \\b"),
        ],
    )
    async def test_unknown_fields_are_rejected(self, target: Target, path: str, selector: str, text: str) -> None:
        answer = await target.get(path, fieldSelector=selector)
        assert (answer.code, answer.message) == (400, text)

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("", ["n0", "n1", "n2"]),
            ("at=1", ["n1"]),
            ("at==1", ["n1"]),
            ("at!=1", ["n0", "n2"]),
            ("at in (0,1)", ["n0", "n1"]),
            ("at notin (0, 1)", ["n2"]),
            ("at", ["n0", "n1", "n2"]),
            ("!at", []),
            ("other!=x", ["n0", "n1", "n2"]),
            ("other notin (x)", ["n0", "n1", "n2"]),
            ("at>0", ["n1", "n2"]),
            ("at<1", ["n0"]),
            ("at>0,at!=2", ["n1"]),
            ("at=", []),
            (" at = 1 , at ", ["n1"]),
        ],
    )
    async def test_label_selectors_select_objects(self, target: Target, selector: str, expected: list[str]) -> None:
        await fill(target, 3)
        assert names((await target.get(target.path("frees"), labelSelector=selector)).content) == expected

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [("metadata.name=n1", ["n1"]), ("metadata.name!=n1", ["n0", "n2"]), ("metadata.name==n0,metadata.name=n1", [])],
    )
    async def test_field_selectors_select_objects(self, target: Target, selector: str, expected: list[str]) -> None:
        await fill(target, 3)
        assert names((await target.get(target.path("frees"), fieldSelector=selector)).content) == expected

    async def test_builtin_kinds_have_their_own_field_selectors(self, target: Target) -> None:
        await target.create("pods", "p", spec={"containers": [{"name": "a", "image": "a"}]})
        for phase, expected in (("Pending", ["p"]), ("Running", [])):
            answer = await target.get(target.path("pods"), fieldSelector=f"status.phase={phase}")
            assert names(answer.content) == expected


class TestForms:
    async def test_metadata_only(self, target: Target) -> None:
        await target.create("frees", "a", spec={"x": 1})
        accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
        content = (await target.get(target.path("frees"), accept=accept)).content
        assert (content["kind"], content["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
        assert "spec" not in content["items"][0]
        assert content["items"][0]["metadata"]["name"] == "a"

    async def test_a_table_has_the_columns_of_the_definition(self, target: Target) -> None:
        await target.create("shapes", "a", spec={"size": 7})
        content = (await target.get(target.path("shapes"), accept=TABLE)).content
        assert content["kind"] == "Table"
        columns = [(column["name"], column["type"]) for column in content["columnDefinitions"]]
        assert columns == [("Name", "string"), ("Size", "integer"), ("Age", "date")]
        assert content["rows"][0]["cells"][:2] == ["a", 7]
        assert content["rows"][0]["object"]["kind"] == "PartialObjectMetadata"

    async def test_a_definition_without_columns_has_an_age_column(self, target: Target) -> None:
        await target.create("frees", "a")
        content = (await target.get(target.path("frees", "a"), accept=TABLE)).content
        assert [column["name"] for column in content["columnDefinitions"]] == ["Name", "Age"]

    async def test_builtin_kinds_have_their_own_columns(self, target: Target) -> None:
        content = (await target.get(f"/api/v1/namespaces/{target.namespace}", accept=TABLE)).content
        assert [column["name"] for column in content["columnDefinitions"]] == ["Name", "Status", "Age"]
        assert content["rows"][0]["cells"][:2] == [target.namespace, "Active"]

    async def test_unsupported_media_types_are_not_acceptable(self, target: Target) -> None:
        answer = await target.get(target.path("frees"), accept="text/html")
        assert answer.code == 406

    async def test_head_has_no_body(self, target: Target) -> None:
        answer = await target.request("HEAD", target.path("frees"))
        assert (answer.code, answer.content) == (200, "")
        assert (await target.request("HEAD", target.path("frees", "a"))).code == 404

    async def test_builtin_kinds_do_not_support_head(self, target: Target) -> None:
        for path in ("/api/v1/namespaces", target.path("configmaps"), target.path("deployments", "a")):
            assert (await target.request("HEAD", path)).code == 405

    async def test_an_invalid_version_is_rejected_first(self, target: Target) -> None:
        answer = await target.get(target.path("configmaps", "a"), resourceVersion="x")
        expected = 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'
        assert (answer.code, answer.message) == (500, expected)


class TestPaths:
    @pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "PATCH"])
    async def test_writes_need_a_namespace(self, target: Target, method: str) -> None:
        await target.create("configmaps", "a")
        answer = await target.request(method, "/api/v1/configmaps", {})
        assert (answer.code, answer.reason) == (405, "MethodNotAllowed")
        answer = await target.request(method, f"/apis/{GROUP}/v1/frees", {})
        assert (answer.code, answer.content) == (404, "404 page not found\n")
        assert (await target.get(target.path("configmaps", "a"))).code == 200

    @pytest.mark.parametrize(
        "path",
        ["/api/v1/nothings", "/apis/apps/v9", "/apis/apps/v1/nothings/x", "/api/v1/pods/x", "/api/v2"],
    )
    async def test_unknown_resources_are_not_found(self, target: Target, path: str) -> None:
        answer = await target.get(path)
        assert (answer.code, answer.reason) == (404, "NotFound")
        assert answer.message == "the server could not find the requested resource"

    @pytest.mark.parametrize("path", ["/nothing", "/apis/nothing.dev/v1", f"/apis/{GROUP}/v1/nothings"])
    async def test_unknown_paths_are_not_found_in_plain_text(self, target: Target, path: str) -> None:
        answer = await target.get(path)
        assert (answer.code, answer.content) == (404, "404 page not found\n")

    async def test_unsupported_methods_are_rejected(self, target: Target) -> None:
        await target.create("configmaps", "a")
        path = target.path("configmaps", "a")
        obj = {"metadata": {"name": "a"}}
        assert (await target.request("POST", path, obj)).reason == "MethodNotAllowed"
        assert (await target.request("PUT", target.path("configmaps"), obj)).reason == "MethodNotAllowed"

    @pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
    async def test_health_is_ok(self, target: Target, path: str) -> None:
        assert (await target.get(path)).content == "ok"

    async def test_the_server_version_is_served(self, target: Target) -> None:
        assert {"major", "minor", "gitVersion", "platform"} <= (await target.get("/version")).content.keys()


class TestDiscovery:
    async def test_groups_list_their_versions(self, target: Target) -> None:
        content = (await target.get("/apis")).content
        groups = {group["name"]: group for group in content["groups"]}
        assert groups["apps"]["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}
        assert [item["version"] for item in groups["events.k8s.io"]["versions"]] == ["v1"]
        assert (await target.get(f"/apis/{GROUP}")).content["name"] == GROUP
        assert (await target.get("/api")).content["versions"] == ["v1"]

    async def test_versions_list_their_resources(self, target: Target) -> None:
        content = (await target.get(f"/apis/{GROUP}/v1")).content
        resources = {item["name"]: item for item in content["resources"]}
        assert {"shapes", "shapes/status", "shapes/scale", "frees", "globals"} <= resources.keys()
        assert "frees/status" not in resources
        assert resources["frees"]["singularName"] == "free"
        assert resources["globals"]["namespaced"] is False
        assert {"create", "watch", "deletecollection"} <= set(resources["frees"]["verbs"])

    @pytest.mark.parametrize(
        ("path", "name", "short", "categories"),
        [
            ("/api/v1", "pods", ["po"], ["all"]),
            ("/api/v1", "configmaps", ["cm"], None),
            ("/apis/apps/v1", "deployments", ["deploy"], ["all"]),
            ("/apis/batch/v1", "jobs", None, ["all"]),
            ("/apis/coordination.k8s.io/v1", "leases", None, None),
        ],
    )
    async def test_builtin_kinds_have_their_names(
        self, target: Target, path: str, name: str, short: list[str] | None, categories: list[str] | None
    ) -> None:
        resources = {item["name"]: item for item in (await target.get(path)).content["resources"]}
        assert resources[name].get("shortNames") == short
        assert resources[name].get("categories") == categories

    @pytest.mark.parametrize("path", ["/api", "/apis"])
    async def test_discovery_is_served_aggregated(self, target: Target, path: str) -> None:
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
        answer = await target.get(path, accept=accept)
        assert answer.headers["Content-Type"] == accept.partition(",")[0]
        assert (answer.content["kind"], answer.content["apiVersion"]) == (
            "APIGroupDiscoveryList",
            "apidiscovery.k8s.io/v2",
        )
        group = "" if path == "/api" else GROUP
        found = next(item for item in answer.content["items"] if item["metadata"].get("name", "") == group)
        resources = {item["resource"]: item for item in found["versions"][0]["resources"]}
        name, sub = ("pods", "status") if path == "/api" else ("shapes", "scale")
        assert resources[name]["scope"] == "Namespaced"
        assert sub in {item["subresource"] for item in resources[name]["subresources"]}
