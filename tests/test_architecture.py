"""Imports point one way, the public surface is what it says, and starting is cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import incognita

SOURCE = Path(incognita.__file__).parent

# A folder may import only folders named earlier; those in one set do not import each other.
LAYERS = [
    {"_lazy", "_version", "errors", "shapes"},
    {"registry", "files", "calls"},
    {"kernels"},
    {"containers"},
    {"formats", "models", "metrics"},
    {"benchmarks"},
    {"extraction"},
    {"methods"},
    {"decisions"},
    {"results"},
    {"evaluation"},
    {"cli"},
]
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


def test_every_public_name_exists():
    assert len(incognita.__all__) <= 20
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
