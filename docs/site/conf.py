"""Configuration of the documentation as a site: `nox -s docs` builds it, without a network.

The pages are Markdown that reads well in a repository, too, so there is nothing in them that only Sphinx understands.
The navigation is in navigation.md, and is added to the first page. The reference of the API comes from docstrings.
"""

from __future__ import annotations

import inspect
import pathlib
import re
import shlex
import sys

import sphinx.application
import sphinx.util.logging

import trioperator

ROOT = pathlib.Path(__file__).parents[2]
HERE = ROOT / "docs" / "site"

project = "trioperator"
copyright = "the trioperator authors"
version = release = trioperator.__version__

# The source directory is the repository, so that pages link to each other as they do there.
root_doc = "docs/README"
include_patterns = [
    "docs/**.md",
    "examples/**.md",
    "deploy/**.md",
    "tests/lives/README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "LICENSE",
]
exclude_patterns = ["docs/site/navigation.md"]
source_suffix = {".md": "markdown"}
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
suppress_warnings = [
    "ref.python",  # attributes of several classes have the names of built-in types
    "misc.highlighting_failure",  # "…" in YAML and JSON
]
# Diagrams are images: no script draws them when a page is read.
mermaid_output_format = "svg"
mermaid_cmd = shlex.quote(str(pathlib.Path(sys.executable).with_name("mermaidx")))
mermaid_params = ["--background", "white"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = f"trioperator {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["root"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
templates_path: list[str] = []

# For `nox -s docs -- linkcheck`, which needs a network.
linkcheck_timeout = 10
linkcheck_retries = 2
linkcheck_rate_limit_timeout = 30

_log = sphinx.util.logging.getLogger("trioperator")
_OUTSIDE = re.compile(
    r"<(?:script|img|image|object|iframe|source)\b[^>]*\b(?:src|href|data)=\"(?:https?:)?//[^\"]+"
    r"|<link\b(?![^>]*\brel=\"(?:canonical|next|prev)\")[^>]*\bhref=\"(?:https?:)?//[^\"]+"
    r"|url\([\"']?(?:https?:)?//[^)]+|@import [\"'](?:https?:)?//[^\"']+"
)
_API = re.compile(r"^<!-- api: (?P<module>[\w.]+)(?: \| (?P<kind>\w+))? -->$", re.MULTILINE)


def list_names(module: str, kind: str | None) -> list[str]:
    """Return the public names of a module: all, or only `errors`, `classes`, `functions` or `values`."""
    loaded = __import__(module, fromlist=["_"])
    kinds = {name: _kind_of(getattr(loaded, name)) for name in loaded.__all__ if name != "__version__"}
    return [name for name in kinds if kind in (None, kinds[name])]


def _kind_of(value: object) -> str:
    if inspect.isclass(value):
        return "errors" if issubclass(value, BaseException) else "classes"
    return "functions" if inspect.isroutine(value) else "modules" if inspect.ismodule(value) else "values"


def write_reference(match: re.Match[str]) -> str:
    """Return the directives for the names of a module, whose docstrings are in reStructuredText."""
    # Values have no docstrings but their types'.
    directives = {"errors": "autoexception", "classes": "autoclass", "functions": "autofunction", "values": "py:data"}
    module, kind = match["module"], match["kind"]
    loaded = __import__(module, fromlist=["_"])
    lines = []
    for name in list_names(module, kind):
        if (found := _kind_of(getattr(loaded, name))) in directives:
            lines += [f".. {directives[found]}:: {module}.{name}", ""]
    return "\n".join(["```{eval-rst}", *lines, "```"])


def change_source(app: sphinx.application.Sphinx, docname: str, source: list[str]) -> None:
    """Add the navigation to the first page, and the names of modules to the reference of the API."""
    if docname == root_doc:
        source[0] += (HERE / "navigation.md").read_text()
    source[0] = _API.sub(write_reference, source[0])


def check_assets(app: sphinx.application.Sphinx, error: Exception | None) -> None:
    """Warn of scripts, styles, fonts and images that readers would load from elsewhere."""
    for path in sorted(pathlib.Path(app.outdir).rglob("*")) if error is None else ():
        if path.suffix in (".html", ".css", ".svg"):
            for match in _OUTSIDE.finditer(path.read_text()):
                _log.warning("%s loads %s", path.relative_to(app.outdir), match[0])


def setup(app: sphinx.application.Sphinx) -> None:
    """Register what this file adds to Sphinx."""
    app.connect("source-read", change_source)
    app.connect("build-finished", check_assets)
