"""Imports point one way, the public surface is what it says, and starting is cheap."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import incognita

SOURCE = Path(incognita.__file__).parent

# A folder may import only folders named earlier; those in one set do not import each other.
LAYERS = [
    {"_version", "errors", "shapes"},
    {"registry", "files", "calls"},
    {"kernels"},
    {"containers"},
    {"formats", "models", "metrics"},
    {"semantics"},
    {"benchmarks"},
    {"extraction"},
    {"methods"},
    {"decisions"},
    {"results"},
    {"evaluation"},
    {"report", "integrations"},
    {"cli"},
]
# Modules with one importer that are ideas of their own: entries of a table, kernels, commands.
SINGLE_IMPORTER = {
    "incognita.benchmarks.data_plan",
    "incognita.benchmarks.sources",
    "incognita.benchmarks.sources.folder",
    "incognita.benchmarks.splits.build",
    "incognita.benchmarks.splits.saod",
    "incognita.benchmarks.splits.saod_driving",
    "incognita.benchmarks.terra.datasets",
    "incognita.benchmarks.terra.rendering",
    "incognita.cli.app",
    "incognita.cli.audit",
    "incognita.cli.build",
    "incognita.cli.check",
    "incognita.cli.compare",
    "incognita.cli.confusions",
    "incognita.cli.corrupt",
    "incognita.cli.data",
    "incognita.cli.demo",
    "incognita.cli.doctor",
    "incognita.cli.leaderboard",
    "incognita.cli.list",
    "incognita.cli.reproduce",
    "incognita.cli.report",
    "incognita.cli.results",
    "incognita.cli.selfaware",
    "incognita.cli.store",
    "incognita.containers.exchange",
    "incognita.decisions",
    "incognita.decisions.confidence_thresholds",
    "incognita.decisions.guard",
    "incognita.decisions.parse",
    "incognita.evaluation.classifier",
    "incognita.evaluation.classifier_metrics",
    "incognita.evaluation.detector",
    "incognita.evaluation.gallery",
    "incognita.evaluation.hyperparameter_search",
    "incognita.formats.coco_layout",
    "incognita.formats.coco_results",
    "incognita.integrations.torchmetrics",
    "incognita.kernels.coco_json",
    "incognita.kernels.ranking",
    "incognita.kernels.resampling",
    "incognita.kernels.selection",
    "incognita.kernels.terra.painting",
    "incognita.kernels.weibull",
    "incognita.methods.activation_shaping",
    "incognita.methods.contract",
    "incognita.methods.ensembles",
    "incognita.methods.knn",
    "incognita.methods.mahalanobis",
    "incognita.methods.numerics.class_gaussians",
    "incognita.methods.numerics.neighbor_search",
    "incognita.methods.per_head",
    "incognita.methods.saving",
    "incognita.metrics.self_awareness",
    "incognita.models.from_torchvision.families",
    "incognita.models.from_transformers.detectors",
    "incognita.report",
    "incognita.report.detector_objects",
    "incognita.report.leaderboard_site",
    "incognita.report.mistakes",
    "incognita.report.page",
    "incognita.results.outcomes",
    "incognita.semantics.class_names",
    "incognita.semantics.similarity",
}
OPEN = ("__init__.py", "__main__.py")  # these two open all folders


def imports_of(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("incognita.")}


def modules() -> list[Path]:
    return sorted(
        path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name not in OPEN
    )


def layer_of(part: str) -> int:
    return next(k for k, layer in enumerate(LAYERS) if part in layer)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_what_stands_before_it(path):
    part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for imported in imports_of(path) - {part}:
        assert layer_of(imported) < layer_of(part), f"{part} must not import {imported}"


def test_only_kernels_import_numba():
    for path in modules():
        if "kernels" not in path.parts:
            tree = ast.parse(path.read_text())
            names = [
                n.name
                for node in ast.walk(tree)
                if isinstance(node, ast.Import)
                for n in node.names
            ]
            assert "numba" not in names, path


def imported_modules() -> dict[str, set[str]]:
    """The internal modules that each module imports, without `errors` and `shapes`."""
    names = {
        ".".join(("incognita", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in SOURCE.rglob("*.py")
    }
    graph = {}
    for name, path in names.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("incognita"):
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {module if module in names else node.module for module in full}
        graph[name] = found - {name, "incognita.errors", "incognita.shapes"}
    return graph


def test_following_a_line_takes_few_imports(record_property):
    n_lines = sum(path.read_text().count("\n") for path in SOURCE.rglob("*.py"))
    n_imports = sum(map(len, imported_modules().values()))
    coupling = 1000 * n_imports / n_lines
    record_property("internal imports per 1000 lines", round(coupling, 1))
    assert coupling <= 20


def test_a_module_has_two_importers_or_a_public_name():
    graph = imported_modules()
    importers = Counter(module for found in graph.values() for module in found)
    single = {module for module in graph if importers[module] == 1}
    # a command is a file of its own, however many there are
    assert len({module for module in single if not module.startswith("incognita.cli.")}) <= 32
    assert single <= SINGLE_IMPORTER, (
        f"New modules with a single importer: {sorted(single - SINGLE_IMPORTER)}. Put them into "
        f"the module that imports them, or export a public name."
    )


def test_no_two_modules_define_a_public_class_of_one_name():
    homes: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_no_folder_is_crowded():
    widths = Counter(path.parent for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    for folder, n_files in widths.items():
        one_entry_per_file = folder.name in ("methods", "cli")
        assert n_files <= (30 if one_entry_per_file else 24), folder


def body_length(function: ast.FunctionDef) -> int:
    """Return the lines of a function without its signature and its docstring."""
    first, *rest = function.body
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    body = rest if has_docstring else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_function_body_has_more_than_fifty_lines():
    functions = {
        f"{path.relative_to(SOURCE)}: {node.name}": body_length(node)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert len(functions) > 2000
    assert {name: n for name, n in functions.items() if n > 50} == {}


def test_every_public_name_exists():
    assert len(incognita.__all__) <= 28
    for name in incognita.__all__:
        assert getattr(incognita, name) is not None
    assert sorted(incognita.__all__) == dir(incognita)
    with pytest.raises(AttributeError, match="has no attribute 'certifi'"):
        incognita.certifi  # noqa: B018 - the access is the test


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import incognita.metrics", {"torch", "sklearn", "pandas", "jaxtyping"}),
        (
            "import incognita.decisions.parse, incognita.decisions.confidence_thresholds",
            {"torch", "sklearn", "pandas", "jaxtyping"},
        ),
        (
            "import incognita.evaluation.certify",
            {"torch", "sklearn", "pydantic", "rich", "jaxtyping"},
        ),
        ("import incognita.cli.app", {"torch", "numpy", "numba"}),
        ("import incognita", {"torch", "numpy", "numba"}),
    ],
)
def test_starting_imports_nothing_heavy(statement, absent):
    code = f"{statement}; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not absent & set(run.stdout.split())
