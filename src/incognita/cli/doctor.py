"""`incognita doctor`: what is installed, what is missing, and what that means."""

import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from incognita._version import __version__
from incognita.cli._terminal import CRITERION_FAILED, progress_on_stderr
from incognita.errors import InvalidDataError, MissingExtraError, count, printable

# by import name, the distribution that installs it; tests compare both tables with pyproject.toml
CORE = {
    "numpy": "numpy",
    "numba": "numba",
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "polars": "polars",
    "safetensors": "safetensors",
    "pydantic": "pydantic",
    "typer": "typer",
    "rich": "rich",
    "jinja2": "jinja2",
    "altair": "altair",
    "vl_convert": "vl-convert-python",
}


class Extra(NamedTuple):
    """An extra: the libraries it installs, and what cannot be done without it."""

    libraries: Mapping[str, str]
    without: str


EXTRAS = {
    "torch": Extra(
        {"torch": "torch", "torchvision": "torchvision", "sklearn": "scikit-learn"},
        "No models and no methods: run, check, evaluate and Guard are missing.",
    ),
    "timm": Extra({"timm": "timm"}, "No --model timm:NAME."),
    "transformers": Extra(
        {"transformers": "transformers"}, "No --model transformers:NAME, no DETR, OWLv2 or CLIP."
    ),
    "ultralytics": Extra(
        {"ultralytics": "ultralytics"}, "No YOLO: --model ultralytics:FILE is missing."
    ),
    "calibrators": Extra(
        {"sklearn": "scikit-learn"}, "selfaware fit cannot use isotonic, temperature or platt."
    ),
    "torchmetrics": Extra(
        {"torchmetrics": "torchmetrics"}, "No incognita.integrations.torchmetrics for training."
    ),
    "lightning": Extra({"lightning": "lightning"}, "No incognita.integrations.lightning."),
    "supervision": Extra({"supervision": "supervision"}, "No Detections.to_supervision."),
    "fiftyone": Extra({"fiftyone": "fiftyone"}, "No FiftyOne to look at saved boxes."),
    "pandas": Extra({"pandas": "pandas"}, "No to_pandas(); to_dataframe() returns polars."),
    "onnx": Extra(
        {"onnx": "onnx", "onnxscript": "onnxscript", "onnxruntime": "onnxruntime"},
        "No Guard.to_onnx.",
    ),
}
_LEAST_FREE = 2 * 10**9  # bytes; logits and features of ImageNet's training set take more


class Finding(NamedTuple):
    """One line of the report; a status of `broken` fails the command."""

    name: str
    status: str  # ok, missing, broken, note
    sentence: str


Store = Annotated[Path, typer.Option(help="Folder for outputs of networks, as of run --store.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")]


def doctor_command(store: Store = Path("runs/outputs"), as_json: AsJson = False) -> None:
    """Show what is installed, which extras are missing and what that means.

    Example: incognita doctor --json

    Exit codes: 0 the core works, whatever extras are missing; 1 something is broken.
    """
    with progress_on_stderr(first="importing") as (on_step, _):
        found = {}
        for title, findings in _sections(store).items():
            on_step(f"looking at {title}")
            found[title] = list(_until_error(findings))
    is_broken = any(f.status == "broken" for findings in found.values() for f in findings)
    if as_json:
        sys.stdout.write(json.dumps(_as_json(found, works=not is_broken), indent=2) + "\n")
    else:
        _print(found)
    if is_broken:
        raise typer.Exit(CRITERION_FAILED)


def _sections(store: Path) -> dict[str, Iterator[Finding]]:
    return {
        "core": _core(),
        "extras": _extras(),
        "machine": _machine(),
        "folders": _folders(store),
        "plug-ins": _plug_ins(),
    }


def _until_error(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield findings; what goes wrong in between, where the core is broken, is one of them."""
    try:
        yield from findings
    except Exception as error:  # whatever is broken is shown, not raised
        yield Finding("others", "broken", _in_words(error))


def _core() -> Iterator[Finding]:
    yield Finding("incognita", "ok", f"{__version__} in {Path(__file__).parents[1]}")
    yield Finding("python", "ok", f"{platform.python_version()} in {sys.executable}")
    for library, distribution in CORE.items():
        problem = _import_problem(library)
        sentence = _version(library, distribution) if problem is None else problem
        yield Finding(distribution, "ok" if problem is None else "broken", sentence)
    yield _kernels()


def _kernels() -> Finding:
    """Compute a number whose value is known; this compiles a kernel or loads a compiled one."""
    try:
        import numpy as np

        from incognita.metrics import auroc

        value = auroc(np.array([0.1, 0.9]), np.array([False, True]))
    except Exception as error:  # whatever is broken is shown, not raised
        return Finding("kernels", "broken", _in_words(error))
    if value != 1.0:
        return Finding("kernels", "broken", f"Expected an AUROC of 1, computed {value}.")
    return Finding("kernels", "ok", "compiled, and they compute what they should")


def _extras() -> Iterator[Finding]:
    for name, extra in EXTRAS.items():
        problems = {library: _import_problem(library) for library in extra.libraries}
        missing = [library for library, why in problems.items() if why == _MISSING]
        broken = [f"{library}: {why}" for library, why in problems.items() if why]
        if missing:
            command = f"pip install 'incognita[{name}]'"
            yield Finding(name, "missing", f"{extra.without} {command}")
        elif broken:
            yield Finding(name, "broken", "; ".join(broken))
        else:
            versions = (f"{k} {_version(k, v)}" for k, v in extra.libraries.items())
            yield Finding(name, "ok", ", ".join(versions))


_MISSING = "not installed"


def _import_problem(library: str) -> str | None:
    """Import a library; return what is wrong with it, or None."""
    from importlib import import_module
    from importlib.util import find_spec
    from pkgutil import resolve_name

    try:
        if library not in sys.modules and find_spec(library) is None:
            return _MISSING
        if library == "ultralytics":  # importing it changes the process
            resolve_name("incognita.models.from_ultralytics:part")("utils")
        else:
            import_module(library)
    except MissingExtraError as error:  # of our module that imports it
        return _in_words(error.__cause__ or error)
    except (Exception, SystemExit) as error:  # the code of others may fail in any way
        return _in_words(error)
    return None


def _in_words(error: BaseException) -> str:
    return printable(" ".join(f"{type(error).__name__}: {error}".split()))


def _version(library: str, distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:  # built by another name, such as opencv-python
        return str(getattr(sys.modules.get(library), "__version__", "of unknown version"))


def _machine() -> Iterator[Finding]:
    yield Finding("system", "ok", platform.platform())
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("cores", "ok", f"{usable} of {os.cpu_count()} usable, {_processor()}")
    yield Finding("memory", "ok", _memory())
    yield from _gpus()


def _processor() -> str:
    lines = _lines(Path("/proc/cpuinfo"))
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _memory() -> str:
    """Return the memory of the machine, or of the container if that is less."""
    numbers = {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(":") for line in _lines(Path("/proc/meminfo")))
        if name in ("MemTotal", "MemAvailable")
    }
    if len(numbers) < 2:
        return "not shown by this system"
    limits = [int(n) for n in _lines(Path("/sys/fs/cgroup/memory.max")) if n.isdigit()]
    total = min([numbers["MemTotal"], *limits])
    available = min(numbers["MemAvailable"], total)
    return f"{total / 1e9:.0f} GB, {available / 1e9:.0f} GB available"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _gpus() -> Iterator[Finding]:
    torch: Any = sys.modules.get("torch")
    try:
        n_devices = torch.cuda.device_count() if torch and torch.cuda.is_available() else 0
        names = [torch.cuda.get_device_name(k) for k in range(n_devices)]
    except Exception as error:  # of a driver
        yield Finding("GPU", "broken", _in_words(error))
        return
    if torch is None:
        yield Finding("GPU", "note", "not looked for without torch")
    elif not names:
        yield Finding("GPU", "ok", "none that torch can use; everything runs on the CPU")
    for k, name in enumerate(names):
        yield Finding("GPU", "ok", f"--device cuda:{k} is {name}")


def _folders(store: Path) -> Iterator[Finding]:
    yield _data_folder()
    yield _writable("store", store, holds_outputs=True)
    yield _writable("temporary", Path(tempfile.gettempdir()))
    if cache := os.environ.get("NUMBA_CACHE_DIR"):
        yield _writable("kernel cache", Path(cache))
    else:
        yield _writable("kernel cache", Path(__file__).parents[1] / "kernels", needed=False)
    from incognita.formats.images import user_cache_dir

    yield _writable("cache", user_cache_dir())


def _data_folder() -> Finding:
    named = os.environ.get("INCOGNITA_DATA")
    if not named:
        sentence = "INCOGNITA_DATA is not set: benchmarks with images need --data."
        return Finding("data", "note", sentence)
    if not os.access(named, os.R_OK | os.X_OK) or not Path(named).is_dir():
        sentence = f"INCOGNITA_DATA={named} is not a folder that can be read. Correct or unset it."
        return Finding("data", "broken", sentence)
    return Finding("data", "ok", f"INCOGNITA_DATA={named}")


def _writable(
    name: str, folder: Path, *, needed: bool = True, holds_outputs: bool = False
) -> Finding:
    """Return whether a folder can be written to, or made, and the room on its disk."""
    absolute = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() raises on circular links
    there = next(p for p in (absolute, *absolute.parents) if p.exists())
    free = shutil.disk_usage(there).free
    shown = f"{absolute}{'' if absolute == there else ' (not there yet)'}, {_size(free)} free"
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        sentence = f"{there} cannot be written to. Choose another folder, or allow writing."
        return Finding(name, "broken" if needed else "note", sentence)
    if holds_outputs and free < _LEAST_FREE:
        return Finding(name, "note", f"{shown}: little for outputs. incognita store prune")
    return Finding(name, "ok", shown)


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB"


def _plug_ins() -> Iterator[Finding]:
    from incognita.methods import METHODS

    plug_ins, notes = METHODS.plug_ins
    for plug_in in plug_ins.values():
        try:
            METHODS.get(plug_in.name)
        except (InvalidDataError, MissingExtraError) as error:
            yield Finding(plug_in.name, "note", str(error))
        else:
            yield Finding(plug_in.name, "ok", f"method of {plug_in.distribution}")
    from incognita.benchmarks.definition_files import installed_benchmarks

    installed = installed_benchmarks()
    for name, distribution in installed.distributions.items():
        yield Finding(name, "ok", f"benchmark of {distribution}")
    for sentence in (*notes, *installed.notes):
        yield Finding("left out", "note", sentence)


def _as_json(found: Mapping[str, list[Finding]], *, works: bool) -> dict[str, Any]:
    sections = {title: [f._asdict() for f in findings] for title, findings in found.items()}
    return {"works": works, **sections}


def _print(found: Mapping[str, list[Finding]]) -> None:
    shown = [finding for findings in found.values() for finding in findings]
    width = max(len(finding.name) for finding in shown)
    for title, findings in found.items():
        sys.stdout.write(f"{title}{'' if findings else ': none'}\n")
        for name, status, sentence in findings:
            sys.stdout.write(f"  {status:<7}  {name:<{width}}  {printable(sentence)}\n")
    broken = [finding.name for finding in shown if finding.status == "broken"]
    n_missing = sum(finding.status == "missing" for finding in shown)
    if broken:
        sys.stdout.write(f"Broken: {', '.join(broken)}.\n")
    else:
        rest = f"; {count(n_missing, 'extra')} missing" if n_missing else ""
        sys.stdout.write(f"The core works{rest}.\n")
