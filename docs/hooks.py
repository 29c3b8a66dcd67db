"""Hooks of MkDocs: pages that are built from the repository and from docstrings, never by hand.

Files outside of docs/ become pages, links between them are kept, equations become MathML, and every
method, metric and public name gets its docstring.
"""

import posixpath
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

import incognita
from incognita import metrics
from incognita.evaluation import certify_scores
from incognita.evaluation.self_aware import CONVENTIONS as SELF_AWARE_CONVENTIONS
from incognita.methods import METHODS
from incognita.metrics.catalog import METRICS, MetricInfo
from incognita.report.prose import as_mathml

ROOT = Path(__file__).parents[1]
STREET = ROOT / "src" / "incognita" / "benchmarks" / "examples" / "street"
# page of the site: file of the repository
COPIED = {
    "index.md": "README.md",
    "conventions.md": "CONVENTIONS.md",
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    **{
        f"studies/{path.parent.name}.md": str(path.relative_to(ROOT))
        for path in sorted((ROOT / "studies").glob("*/README.md"))
    },
}
# modules with the definitions behind the groups of the catalog
METRIC_MODULES = (
    "ranking", "selective", "detection", "open_set", "lrp", "calibration", "self_awareness",
)  # fmt: skip


@event_priority(100)  # before mkdocstrings takes the list of extensions
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Read equations and examples of docstrings."""
    config.markdown_extensions.append(Docstrings())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    made = {page: (ROOT / source).read_text() for page, source in COPIED.items()}
    made["every-method.md"] = methods_page()
    made["every-metric.md"] = metrics_page()
    made["python.md"] = python_page()
    for page, content in made.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links between files of the repository to pages of the site."""
    home = page.file.src_uri
    source = COPIED.get(home, f"docs/{home}")
    return re.sub(
        r"(!?)\[([^\]]*)\]\(([^)#:]+)(#[^)]*)?\)", lambda link: _moved(link, home, source), markdown
    )


def _moved(link: re.Match[str], home: str, source: str) -> str:
    """Return a link as the site needs it; a file that is not on the site is only named."""
    mark, text, target, place = (part or "" for part in link.groups())
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    pages = {file: page for page, file in COPIED.items()}
    page = pages.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
    if not page:
        return text
    return f"{mark}[{text}]({posixpath.relpath(page, posixpath.dirname(home) or '.')}{place})"


def methods_page() -> str:
    """Return the page with the docstring of every method that ships."""
    lines = [
        "# Every method",
        "Equation, reference, defaults and departures of each method, from its docstring. "
        "[Methods](methods.md) explains how to choose, combine and write them.",
    ]
    for name, home in METHODS.homes.items():
        lines.append(_directive(home.replace(":", "."), name))
    return "\n\n".join(lines)


def metrics_page() -> str:
    """Return the page with the catalog of metrics and the docstrings behind it."""
    conventions = metric_conventions()
    lines = [
        "# Every metric",
        "The names that results, JSON files and claims use. ↑ higher is better, ↓ lower is better. "
        "Functions with their definitions are below; [conventions](conventions.md) says how "
        "papers and public codes differ.",
    ]
    for group in dict.fromkeys(metric.group for metric in METRICS.values()):
        rows = ["| name | shown as | definition | conventions |", "| --- | --- | --- | --- |"]
        rows += [
            _row(name, metric, conventions.get(name, []))
            for name, metric in METRICS.items()
            if metric.group == group
        ]
        lines += [f"## {group[0].upper()}{group[1:]}", "\n".join(rows)]
    for module in METRIC_MODULES:
        lines.append(f"## metrics.{module}")
        lines += [_directive(f"incognita.metrics.{module}.{name}") for name in _public(module)]
    return "\n\n".join(lines)


def _row(name: str, metric: MetricInfo, conventions: list[str]) -> str:
    shown = ", ".join(f"`{convention}`" for convention in conventions) or "one definition"
    return f"| `{name}` | {metric.title} {metric.direction.arrow} | {metric.meaning} | {shown} |"


def metric_conventions() -> dict[str, list[str]]:
    """Return which conventions define each metric, as certificates hold them."""
    known = ["person", "bicycle", "car", "bus", "dog"]
    boxes = incognita.certify(
        STREET / "truth.json", STREET / "detections.json", known=known, n_resamples=0
    )
    rows = np.arange(40)
    columns = {"image": rows, "score": rows / 40.0, "is_unknown": rows % 2 == 1}
    labels = {"label": rows % 3, "predicted": rows % 4}
    scores = certify_scores(columns | labels, threshold=0.5, n_resamples=0)
    found: dict[str, list[str]] = {}
    for result in (*boxes.results, *scores.results):
        found.setdefault(result.metric, []).append(result.convention)
    for name, metric in METRICS.items():
        if metric.group == "self-awareness":
            found[name] = list(SELF_AWARE_CONVENTIONS)
    return {name: list(dict.fromkeys(names)) for name, names in found.items()}


def _public(module: str) -> list[str]:
    """Return the public functions of a module of metrics, in the order of its source."""
    source = (ROOT / "src" / "incognita" / "metrics" / f"{module}.py").read_text()
    names = re.findall(r"^def (\w+)", source, flags=re.MULTILINE)
    return [name for name in names if name in metrics.__all__]


def python_page() -> str:
    """Return the page with the docstring of every public name."""
    lines = ["# Python", "The public names: `import incognita`."]
    for name in sorted(incognita.__all__, key=str.lower):
        found = getattr(incognita, name)
        if hasattr(found, "__module__"):
            lines.append(_directive(f"{found.__module__}.{found.__qualname__}"))
    return "\n\n".join(lines)


def _directive(path: str, name: str = "") -> str:
    """Return the lines by which mkdocstrings inserts a docstring, under a name of ours if given."""
    lines = [f"::: {path}"]
    if name:
        options = {"heading": name, "toc_label": name, "heading_level": 2}
        lines += ["    options:", *(f"      {key}: {value}" for key, value in options.items())]
    return "\n".join(lines)


class Docstrings(Extension):
    """Reads `$…$` and `$$…$$` as equations, and lines after `>>>` as code."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the base's name
        """Register the patterns; code comes first."""
        md.preprocessors.register(_Examples(md), "examples", 40)
        md.inlinePatterns.register(_Equation(r"\$\$(.+?)\$\$", md, is_block=True), "equation", 186)
        md.inlinePatterns.register(_Equation(r"\$([^$\s][^$]*)\$", md), "formula", 185)


class _Examples(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        """Put a fence around each example, which ends at an empty line."""
        text = "\n".join(lines)
        return re.sub(r"(?m)^>>> (?:.+\n?)+", _fenced, text).split("\n")


def _fenced(example: re.Match[str]) -> str:
    return f"```pycon\n{example[0].rstrip()}\n```\n"


class _Equation(InlineProcessor):
    def __init__(self, pattern: str, md: Markdown, *, is_block: bool = False) -> None:
        super().__init__(pattern, md)
        self.compiled_re = re.compile(pattern, re.DOTALL)
        self.is_block = is_block

    def handleMatch(  # noqa: N802 - the base's name
        self, m: re.Match[str], data: str
    ) -> tuple[ElementTree.Element | str, int, int]:
        """Return an equation as MathML, or as code where it cannot be read."""
        mathml = as_mathml(m[1], is_block=self.is_block)
        if mathml is None:
            code = ElementTree.Element("code")
            code.text = m[1]
            return code, m.start(0), m.end(0)
        return self.md.htmlStash.store(mathml), m.start(0), m.end(0)
