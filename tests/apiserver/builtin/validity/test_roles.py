"""Tests for :mod:`trioperator.apiserver.builtin.validity.roles`: invalid roles and bindings are rejected."""

from __future__ import annotations

import pytest

from tests.apiserver.conftest import RBAC, Guarded


async def test_rules_are_validated(guarded: Guarded) -> None:
    url = {"nonResourceURLs": ["/x"], "verbs": ["get"]}
    rejected = await guarded.make_role("bad", {"verbs": []}, {"verbs": ["get"], "apiGroups": [""]}, url)
    causes = [(item["field"], item["message"]) for item in rejected.content["details"]["causes"]]
    assert (rejected.code, causes) == (
        422,
        [
            ("rules[0].verbs", "Required value: verbs must contain at least one value"),
            ("rules[0].apiGroups", "Required value: resource rules must supply at least one api group"),
            ("rules[0].resources", "Required value: resource rules must supply at least one resource"),
            ("rules[1].resources", "Required value: resource rules must supply at least one resource"),
            ("rules[2].nonResourceURLs", 'Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs'),
        ],
    )
    both = {**url, "apiGroups": [""], "resources": ["pods"]}
    rejected = await guarded.make_role(guarded.named("bad"), both, plural="clusterroles")
    assert rejected.code == 422
    assert "rules cannot apply to both regular resources and non-resource URLs" in rejected.message
    rejected = await guarded.make_role(guarded.named("bad"), plural="clusterroles", aggregationRule={})
    assert "at least one clusterRoleSelector required" in rejected.message


@pytest.mark.parametrize(
    ("term", "field", "message"),
    [
        ({"key": "a", "operator": "Bad"}, "operator", 'Invalid value: "Bad": not a valid selector operator'),
        (
            {"key": "a", "operator": "In"},
            "values",
            "Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        ({"operator": "Exists"}, "key", 'Invalid value: "": name part must be non-empty'),
    ],
)
async def test_aggregation_selectors_are_validated(
    guarded: Guarded, term: dict[str, str], field: str, message: str
) -> None:
    selectors = {"clusterRoleSelectors": [{"matchExpressions": [term]}]}
    rejected = await guarded.make_role(guarded.named("bad"), plural="clusterroles", aggregationRule=selectors)
    causes = [(item["field"], item["message"]) for item in rejected.content["details"]["causes"]]
    path = "aggregationRule.clusterRoleSelectors[0]"
    assert rejected.code == 422
    assert causes[0] == (f"{path}.matchExpressions[0].{field}", message)
    assert causes[-1] == (path, "Invalid value: null: invalid label selector.")


@pytest.mark.parametrize(
    ("subject", "field", "value", "supported"),
    [
        ({"kind": "User"}, "name", None, ()),
        ({"kind": "Pod", "name": "a"}, "kind", "Pod", ("ServiceAccount", "User", "Group")),
        ({"kind": "User", "name": "a", "apiGroup": "x"}, "apiGroup", "x", (RBAC,)),
        ({"kind": "ServiceAccount", "name": "a", "apiGroup": RBAC}, "apiGroup", RBAC, ("",)),
    ],
)
async def test_subjects_are_validated(
    guarded: Guarded, subject: dict[str, str], field: str, value: str | None, supported: tuple[str, ...]
) -> None:
    rejected = await guarded.bind("x", subject)
    causes = [(item["field"], item["message"]) for item in rejected.content["details"]["causes"]]
    shown = ", ".join(f'"{word}"' for word in supported)
    message = f'Unsupported value: "{value}": supported values: {shown}' if value else "Required value"
    assert (rejected.code, causes) == (422, [(f"subjects[0].{field}", message)])


async def test_role_references_are_validated(guarded: Guarded) -> None:
    subject = {"kind": "ServiceAccount", "name": "a"}
    name = guarded.named("bad")
    rejected = await guarded.bind("x", subject, kind="Role", plural="clusterrolebindings", name=name)
    causes = [(item["field"], item["message"]) for item in rejected.content["details"]["causes"]]
    assert causes == [
        ("roleRef.kind", 'Unsupported value: "Role": supported values: "ClusterRole"'),
        ("subjects[0].namespace", "Required value"),
    ]
    assert (await guarded.bind("", subject, name="a")).code == 422


async def test_the_role_of_a_binding_is_immutable(guarded: Guarded) -> None:
    await guarded.bind("one", {"kind": "User", "name": "a"})
    path = guarded.grants("rolebindings", "one")
    rejected = await guarded.merge(path, {"roleRef": {"name": "two"}})
    assert (rejected.code, rejected.content["details"]["causes"][0]["field"]) == (422, "roleRef")
    assert rejected.message.endswith(f'{{"APIGroup":"{RBAC}","Kind":"Role","Name":"two"}}: cannot change roleRef')
    assert (await guarded.merge(path, {"subjects": [{"kind": "Group", "name": "b"}]})).code == 200


async def test_references_and_subjects_have_defaults(guarded: Guarded) -> None:
    made = await guarded.bind("one", {"kind": "User", "name": "a"})
    assert made.content["subjects"] == [{"kind": "User", "name": "a", "apiGroup": RBAC}]
    role = await guarded.make_role("With:Colon")
    assert (role.code, role.content["rules"]) == (201, None)
