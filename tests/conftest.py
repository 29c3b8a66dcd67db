"""What several tests need."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

# Before torch is imported: sharing out small products takes longer than they do.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# torchvision loads a compiler for GPUs, which prints a page about leaks when the process ends
if shutil.which("nvidia-smi") is None:
    sys.modules.setdefault("triton", None)

import numpy as np
import pytest
from hypothesis import settings
from jaxtyping import config as jaxtyping_config

# The first example may have to wait for numba to compile, which says nothing about the code.
settings.register_profile("incognita", deadline=None)
settings.load_profile("incognita")


@pytest.fixture(autouse=True)
def plain_arrays() -> Iterator[None]:
    """Print arrays as NumPy does: some libraries change that for the whole process."""
    plain = {"precision": 8, "suppress": False, "floatmode": "maxprec", "formatter": None}
    with np.printoptions(linewidth=75, sign="-", nanstr="nan", infstr="inf", **plain):
        yield


@pytest.fixture
def outside_tests() -> Iterator[None]:
    """Nobody but the door checks shapes outside tests: let jaxtyping look away for a moment."""
    jaxtyping_config.update("jaxtyping_disable", True)
    yield
    jaxtyping_config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with real data: INCOGNITA_DATA, or ../shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("INCOGNITA_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"needs real data: set INCOGNITA_DATA to its folder ({folder} is none)")
    return folder


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the figures that tests record, such as the coupling of the modules."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")


# Files that take longest, each in one process: begun first, they do not keep the others waiting.
SLOWEST_FILES = (
    "test_demo.py",
    "test_readme.py",
    "test_contracts.py",
    "test_detector_runs.py",
    "test_torchvision_detectors.py",
    "test_transformers_detectors.py",
    "test_from_ultralytics.py",
    "test_real_detector.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slowest files first; the order inside a file stays."""
    places = {name: place for place, name in enumerate(SLOWEST_FILES)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
