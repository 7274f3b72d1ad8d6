"""Operators with planted defects, of the classes that are known from operators in use; each with its mend."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: The fields of the spec of all these operators.
FIELDS: Final[Mapping[str, Any]] = {
    "size": {"type": "integer", "minimum": 0, "maximum": 3},
    "greeting": {"type": "string"},
}

_HEAD: Final = """\
import uuid

import httpx
import trio
import trioperator
from trioperator.testing import effects


def dns(request):
    effects.store("dns")[str(request.url.path)] = request.content.decode()
    return httpx.Response(200)


effects.fake("https://dns.example.com", dns)


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def deployment(name, **spec):
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    selector = {"matchLabels": labels}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}
    return {**body, "spec": {"selector": selector, "template": pod, **spec}}


"""
_CHANGES: Final = '@trioperator.on.create("webapps")\n@trioperator.on.update("webapps")\n'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planted:
    """A defect: the source of the operator, what to replace to mend it, and which oracles may find it."""

    name: str
    source: str
    mend: Sequence[tuple[str, str]]
    oracles: frozenset[str]
    faults: Sequence[str] = ()

    @property
    def code(self) -> str:
        """The source with the defect."""
        return _HEAD + textwrap.dedent(self.source).replace("CHANGES\n", _CHANGES)

    @property
    def mended(self) -> str:
        """The source without the defect."""
        code = self.code
        for old, new in self.mend:
            assert old in code, f"{self.name} has not {old!r}"
            code = code.replace(old, new)
        return code


PLANTED: Final = (
    Planted(
        name="an update that nobody handles",
        source="""\
            @trioperator.on.create("webapps")
            async def apply_fn(name, spec, client):
                await client.apply(config_map(name, size=str(spec.get("size", 1))))
            """,
        mend=[('@trioperator.on.create("webapps")\n', _CHANGES)],
        oracles=frozenset({"path", "revert"}),
    ),
    Planted(
        name="a removal that nobody handles",
        source="""\
            CHANGES
            async def apply_fn(name, spec, client):
                if spec.get("greeting"):
                    await client.apply(config_map(name, greeting=spec["greeting"]))
            """,
        mend=[
            (
                '=spec["greeting"]))\n',
                '=spec["greeting"]))\n    else:\n        await client.delete("configmaps", name, missing_ok=True)\n',
            )
        ],
        oracles=frozenset({"path", "revert"}),
    ),
    Planted(
        name="a prune that is forgotten",
        source="""\
            CHANGES
            async def apply_fn(name, spec, client):
                for number in range(spec.get("size", 1)):
                    await client.apply(config_map(f"{name}-{number}", x="1"))
            """,
        mend=[
            (
                'x="1"))\n',
                'x="1"))\n    for number in range(spec.get("size", 1), 4):\n'
                '        await client.delete("configmaps", f"{name}-{number}", missing_ok=True)\n',
            )
        ],
        oracles=frozenset({"path", "revert"}),
    ),
    Planted(
        name="a validation that is missing",
        source="""\
            @trioperator.on.reconcile("webapps", owns=["deployments.apps"])
            def web_app(name, spec):
                yield deployment(name, replicas=spec.get("size", 1) - 1)
            """,
        mend=[('spec.get("size", 1) - 1', 'max(0, spec.get("size", 1) - 1)')],
        oracles=frozenset({"handlers"}),
    ),
    Planted(
        name="an optional field that is taken for granted",
        source="""\
            CHANGES
            async def apply_fn(name, spec, client):
                await client.apply(config_map(name, greeting=spec["greeting"].upper()))
            """,
        mend=[('spec["greeting"].upper()', 'spec.get("greeting", "").upper()')],
        oracles=frozenset({"handlers", "wedge"}),
    ),
    Planted(
        name="an immutable field that changes",
        source="""\
            @trioperator.on.reconcile("webapps", owns=["deployments.apps"])
            def web_app(name, spec):
                body = deployment(name)
                labels = {"app": name, "greeting": spec.get("greeting", "none")}
                body["spec"]["selector"] = {"matchLabels": labels}
                body["spec"]["template"]["metadata"] = {"labels": labels}
                yield body
            """,
        mend=[('"selector"] = {"matchLabels": labels}', '"selector"] = {"matchLabels": {"app": name}}')],
        oracles=frozenset({"handlers", "path", "revert", "wedge"}),
    ),
    Planted(
        name="an error that is never forgotten",
        source="""\
            @trioperator.on.reconcile("webapps", owns=["configmaps"])
            def web_app(name, spec, status, patch):
                if status.get("broken") or spec.get("size") == 0:
                    patch.status["broken"] = True
                    raise trioperator.TemporaryError("It is broken.", delay=60)
                yield config_map(name, size=str(spec.get("size", 1)))
            """,
        mend=[('status.get("broken") or ', ""), ('patch.status["broken"] = True\n        ', "")],
        oracles=frozenset({"wedge", "path", "revert"}),
    ),
    Planted(
        name="a status that lies",
        source="""\
            @trioperator.on.reconcile("webapps", owns=["deployments.apps"])
            def web_app(name, spec, conditions):
                conditions.set("Ready", True, reason="Applied")
                yield deployment(name, replicas=2)
            """,
        mend=[('"Ready", True', '"Applied", True')],
        oracles=frozenset({"honesty"}),
    ),
    Planted(
        name="a write that calls its handler again",
        source="""\
            @trioperator.on.reconcile("webapps")
            async def web_app(patch):
                patch.status["checked"] = trioperator.wall_now().isoformat()
                return trioperator.Requeue(30)
            """,
        mend=[("    return trioperator.Requeue(30)\n", ""), (".isoformat()", ".year")],
        oracles=frozenset({"quiet", "cost"}),
    ),
    Planted(
        name="a requeue without a pause",
        source="""\
            @trioperator.on.reconcile("webapps")
            def web_app(patch):
                return trioperator.Requeue(0.5)
            """,
        mend=[("Requeue(0.5)", "Requeue(600)")],
        oracles=frozenset({"cost"}),
    ),
    Planted(
        name="a child without an owner",
        source="""\
            CHANGES
            async def apply_fn(name, spec, client):
                await client.apply(config_map(name, size=str(spec.get("size", 1))), owner=None)
            """,
        mend=[(", owner=None", "")],
        oracles=frozenset({"release"}),
    ),
    Planted(
        name="a deletion that fails",
        source="""\
            CHANGES
            async def apply_fn(name, spec, client):
                if spec.get("greeting"):
                    await client.apply(config_map("shared", greeting=spec["greeting"]), owner=None)
                else:
                    await client.delete("configmaps", "shared", missing_ok=True)

            @trioperator.on.delete("webapps")
            async def delete_fn(client):
                await client.delete("configmaps", "shared")
            """,
        mend=[('"shared")\n', '"shared", missing_ok=True)\n')],
        oracles=frozenset({"release", "handlers"}),
    ),
    Planted(
        name="deleted and created again",
        source="""\
            CHANGES
            async def apply_fn(name, spec, client):
                await client.delete("configmaps", name, missing_ok=True)
                await client.apply(config_map(name, size=str(spec.get("size", 1))))
            """,
        mend=[('    await client.delete("configmaps", name, missing_ok=True)\n', "")],
        oracles=frozenset({"effects"}),
    ),
    Planted(
        name="a password that is made anew",
        source="""\
            CHANGES
            async def apply_fn(name, spec, client):
                data = {"password": uuid.uuid4().hex}
                secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}
                await client.apply(secret)
            """,
        mend=[
            (
                "    await client.apply(secret)",
                "    if not await client.list('secrets', fields=f'metadata.name={name}'):\n"
                "        await client.apply(secret)",
            )
        ],
        oracles=frozenset({"effects"}),
    ),
    Planted(
        name="a handler that waits for ever",
        source="""\
            CHANGES
            async def apply_fn(name, spec, client):
                if spec.get("size") == 2:
                    await trio.sleep_forever()
            """,
        mend=[("await trio.sleep_forever()", "await trio.sleep(1)")],
        oracles=frozenset({"handlers"}),
    ),
    Planted(
        name="a name that is not idempotent",
        source="""\
            @trioperator.on.create("webapps")
            async def create_fn(name, client):
                await client.create(config_map(f"{name}-{uuid.uuid4().hex[:8]}", x="1"))
            """,
        mend=[('client.create(config_map(f"{name}-{uuid.uuid4().hex[:8]}"', "client.apply(config_map(name")],
        oracles=frozenset({"crash"}),
        faults=["crash"],
    ),
    Planted(
        name="a conflict that ends too much",
        source="""\
            @trioperator.on.create("webapps")
            async def create_fn(name, client):
                try:
                    await client.create(config_map(name, x="1"))
                except trioperator.ConflictError:
                    return
                await client.create(config_map(f"{name}-2", x="1"))
            """,
        mend=[
            ("        return\n", "        pass\n"),
            ('client.create(config_map(f"{name}-2"', 'client.apply(config_map(f"{name}-2"'),
        ],
        oracles=frozenset({"crash"}),
        faults=["crash"],
    ),
    Planted(
        name="done outside before it is recorded",
        source="""\
            @trioperator.on.create("webapps")
            async def create_fn(name, patch):
                async with httpx.AsyncClient() as http:
                    await http.post("https://dns.example.com/records", content=name)
                patch.status["registered"] = True

            @trioperator.on.delete("webapps")
            async def delete_fn():
                effects.store("dns").clear()
            """,
        mend=[("http.post(", "http.put(")],
        oracles=frozenset({"crash"}),
        faults=["crash"],
    ),
    Planted(
        name="what is only in memory",
        source="""\
            known = {}

            CHANGES
            async def apply_fn(name, spec, client):
                size = spec.get("size", 0)
                for number in range(size):
                    await client.apply(config_map(f"{name}-{number}", x="1"))
                for number in range(size, known.get(name, 0)):
                    await client.delete("configmaps", f"{name}-{number}", missing_ok=True)
                known[name] = size
            """,
        mend=[("known.get(name, 0)", "4")],
        oracles=frozenset({"crash", "blind"}),
        faults=["crash", "blind"],
    ),
    Planted(
        name="a deletion while the operator is down",
        source="""\
            CHANGES
            async def apply_fn(name, spec, client):
                await client.apply(config_map(name, x="1"), owner=None)

            @trioperator.on.event("webapps")
            async def event_fn(type, name, client):
                if type == "DELETED":
                    await client.delete("configmaps", name, missing_ok=True)
            """,
        mend=[
            (
                '@trioperator.on.event("webapps")\nasync def event_fn(type, name, client):\n'
                '    if type == "DELETED":\n    ',
                '@trioperator.on.delete("webapps")\nasync def delete_fn(name, client):\n',
            )
        ],
        oracles=frozenset({"blind"}),
        faults=["blind"],
    ),
    Planted(
        name="a stale view that is trusted",
        source="""\
            seen = set()

            @trioperator.on.event("configmaps")
            async def event_fn(type, name):
                seen.add(name)

            @trioperator.on.create("webapps")
            async def create_fn(name, client):
                while len(seen - {"kube-root-ca.crt"}) < 2:
                    await client.create(config_map(f"{name}-{uuid.uuid4().hex[:8]}", x="1"))
                    await trio.sleep(1)
            """,
        mend=[
            (
                '    while len(seen - {"kube-root-ca.crt"}) < 2:\n'
                '        await client.create(config_map(f"{name}-{uuid.uuid4().hex[:8]}"',
                '    for number in range(2):\n        await client.apply(config_map(f"{name}-{number}"',
            )
        ],
        oracles=frozenset({"late"}),
        faults=["late"],
    ),
    Planted(
        name="drift that nobody puts right",
        source="""\
            @trioperator.on.reconcile("webapps", owns=["configmaps"])
            def web_app(name, spec, status, patch):
                wanted = str(spec.get("size", 1))
                if status.get("applied") == wanted:
                    return trioperator.Requeue(3600)
                patch.status["applied"] = wanted
                return [config_map(name, size=wanted)]
            """,
        mend=[
            ('    if status.get("applied") == wanted:\n        return trioperator.Requeue(3600)\n', ""),
        ],
        oracles=frozenset({"drift"}),
        faults=["drift"],
    ),
)
