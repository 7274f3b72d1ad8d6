"""Generate the protobuf message descriptors of the embedded API server from Kubernetes' sources.

::

    python -m tests.apiserver.protobuf_fields FOLDER VERSION

*FOLDER* holds the modules ``k8s.io/api``, ``k8s.io/apimachinery`` and ``k8s.io/apiextensions-apiserver`` as Go's module
cache does (``$(go env GOMODCACHE)/k8s.io``), in *VERSION* (``v0.36.3``). Read are the messages of ``generated.proto``,
and of the Go types what JSON makes of each field: its name, whether it is inlined, and whether its zero is left out.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import re
import sys
from collections.abc import Iterator

DATA = pathlib.Path(__file__).parents[2] / "trioperator" / "apiserver" / "bodies" / "data" / "protobuf.json.gz"
MODULES = ("api", "apimachinery", "apiextensions-apiserver")
VERSIONS = {"v1", "v2", "runtime", "intstr", "resource"}  # of APIs that are stable, and what they are made of

PACKAGE = re.compile(r"^package (?P<name>\S+);", re.MULTILINE)
MESSAGE = re.compile(r"^message (?P<name>\w+) \{(?P<body>.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(
    r"^ +(?:(?P<label>optional|required|repeated) )?"
    r"(?:map<\w+, (?P<map>[\w.]+)>|(?P<type>[\w.]+)) (?P<name>\w+) = (?P<number>\d+);",
    re.MULTILINE,
)
STRUCT = re.compile(r"^type (?P<name>\w+) struct \{(?P<body>.*?)^\}", re.MULTILINE | re.DOTALL)
TAGGED = re.compile(
    r'^\s+(?:\w+\s+)?(?P<type>[*\[\]\w.]+)\s+`.*?json:"(?P<json>[^"]*)".*?protobuf:"\w+,(?P<number>\d+),', re.MULTILINE
)
GROUP = re.compile(r'GroupName\s*=\s*"(?P<name>[^"]*)"')


def read_go(folder: pathlib.Path) -> dict[tuple[str, int], tuple[str, str]]:
    """Parse JSON names and flags by struct and field number: ``i`` (inline), ``z`` (omit zero)."""
    found: dict[tuple[str, int], tuple[str, str]] = {}
    for path in folder.glob("*.go"):
        for struct in STRUCT.finditer(path.read_text(encoding="utf-8")):
            for field in TAGGED.finditer(struct["body"]):
                name, _, options = field["json"].partition(",")
                flags = "i" if "inline" in options else ""
                if "omitempty" in options and not field["type"].startswith("*"):
                    flags += "z"
                found[struct["name"], int(field["number"])] = (name, flags)
    return found


def read_folder(path: pathlib.Path) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Parse the messages of one package."""
    text = path.read_text(encoding="utf-8")
    found = PACKAGE.search(text)
    assert found is not None, path
    package, go = found["name"], read_go(path.parent)
    for message in MESSAGE.finditer(text):
        fields: dict[str, list[str]] = {}
        for field in FIELD.finditer(message["body"]):
            kind = field["map"] or field["type"]
            if kind.startswith("."):
                kind = kind[1:]
            elif kind[0].isupper():
                kind = f"{package}.{kind}"
            name, flags = go.get((message["name"], int(field["number"])), (field["name"], ""))
            flags += "m" if field["map"] else "r" if field["label"] == "repeated" else ""
            fields[field["number"]] = [field["name"] if name in ("", "-") else name, kind, flags]
        yield f"{package}.{message['name']}", fields


def read_group(path: pathlib.Path) -> str | None:
    """Parse the name of the API group of a package."""
    register = path.parent / "register.go"
    found = GROUP.search(register.read_text(encoding="utf-8")) if register.exists() else None
    return None if found is None else found["name"]


def main(folder: pathlib.Path, version: str) -> None:
    """Write the descriptors."""
    packages: dict[str, str] = {}
    messages: dict[str, dict[str, list[str]]] = {}
    for module in MODULES:
        for path in sorted((folder / f"{module}@{version}").rglob("generated.proto")):
            if path.parent.name not in VERSIONS or "/testdata/" in str(path):
                continue
            found = dict(read_folder(path))
            messages |= found
            group = read_group(path)
            if group is not None and found:
                package = next(iter(found)).rpartition(".")[0]
                packages[f"{group}/{path.parent.name}" if group else path.parent.name] = package
    packages.pop("meta.k8s.io/v1", None)
    content = json.dumps({"packages": packages, "messages": messages}, separators=(",", ":"), sort_keys=True)
    DATA.write_bytes(gzip.compress(content.encode(), 9, mtime=0))
    print(f"{len(messages)} messages of {len(packages)} API versions, {DATA.stat().st_size} bytes")  # noqa: T201


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
