"""Runs groups of comparisons and prints one table each.

Each group runs in a process of its own. A group is a module of this folder with a function
`rows() -> list[Row]`, and one line below.
"""

import argparse
import json
import platform
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.harness import Row, rows_of, use_one_thread

GROUPS = {
    "ranking": "bench.ranking",
    "detection": "bench.detection",
    "calibration": "bench.calibration",
    "reading": "bench.reading",
    "startup": "bench.startup",
    "scoring": "bench.scoring",
    "neighbors": "bench.neighbors",
    "one-pass": "bench.one_pass",
    "boxes": "bench.boxes",
    "memory": "bench.memory",
    "corruptions": "bench.corruptions",
    "self-aware": "bench.self_aware",
    "semantics": "bench.semantics",
    "superclasses": "bench.superclasses",
    "guard": "bench.guard",
    "audit": "bench.audit",
    "report": "bench.report",
    "leaderboard": "bench.leaderboard",
}
WIDTH = 110  # the same table in a terminal and in a file
LIBRARIES = (
    "numpy",
    "numba",
    "scikit-learn",
    "torch",
    "torchmetrics",
    "torchvision",
    "pytorch-ood",
    "faiss-cpu",
    "hotcoco",
    "vernier",
    "faster-coco-eval",
    "pycocotools",
    "opencv-python-headless",
    "imagecorruptions-imaug",
    "nltk",
)


def main() -> None:
    """Run the groups that were asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="group", help=", ".join(GROUPS))
    parser.add_argument("--json", type=Path, help="also write the tables to this file")
    asked = parser.parse_args()
    unknown = set(asked.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no group is called {', '.join(sorted(unknown))}; choose from {list(GROUPS)}")
    use_one_thread()
    console = Console(width=WIDTH)
    tables = {}
    for group in asked.groups or GROUPS:
        tables[group] = run_alone(GROUPS[group])
        console.print(table_of(group, tables[group]))
    if asked.json:
        asked.json.write_text(json.dumps(record_of(tables), indent=1) + "\n")


def run_alone(module: str) -> list[Row]:
    """Run a group in a process of its own: memory that one leaves behind speeds up the next."""
    spawn = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=use_one_thread) as pool:
        return pool.submit(rows_of, module).result()


def table_of(group: str, rows: list[Row]) -> Table:
    """Lay out one group; parts are set apart by a line."""
    table = Table(title=f"{group}: one thread, smallest processor time")
    table.add_column("")
    table.add_column("case")
    for heading in ("time", "measured", "extra memory", "bar"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("met")
    part = ""
    for row in rows:
        if row.part != part:
            table.add_section()
        table.add_row(row.part if row.part != part else "", *cells_of(row))
        part = row.part
    return table


def cells_of(row: Row) -> list[str]:
    """Write the columns of a row after its part."""
    met = {None: "", True: "[green]yes[/]", False: "[bold red]NO[/]"}[row.is_met]
    return [
        row.case,
        "" if row.seconds is None else duration(row.seconds),
        row.unit if row.value is None else f"{row.value:.2f} {row.unit}",
        "" if row.extra_mib is None else f"{row.extra_mib:,.0f} MiB",
        row.bar,
        met,
    ]


def duration(seconds: float) -> str:
    """Write a time with a unit that fits it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


def record_of(tables: dict[str, list[Row]]) -> dict[str, object]:
    """Give the tables with the machine and the versions they were measured with."""
    return {
        "machine": {"processor": platform.machine(), "system": platform.platform()},
        "versions": {"python": platform.python_version()}
        | {name: found(name) for name in LIBRARIES},
        "groups": {group: [asdict(row) for row in rows] for group, rows in tables.items()},
    }


def found(library: str) -> str | None:
    """Give the version that is installed."""
    try:
        return version(library)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
