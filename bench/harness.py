"""Measures cases side by side and holds them against bars.

All cases of a comparison run round-robin in one process on one thread, so that a disturbance of the
machine hits all of them alike, and the smallest processor time of the rounds is kept. Nothing heavy
is imported here: `use_one_thread` must run before numpy is first imported.
"""

import ctypes
import gc
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROUNDS = 5
BUDGET_S = 15.0  # a case that has used this much is not run again
MIB = 2**20
GB = 10**9
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's malloc.h

Run = Callable[[], object]

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
)


@dataclass(frozen=True)
class Measurement:
    """The cost of one case; memory is None where the system does not tell."""

    seconds: float
    extra_bytes: int | None


@dataclass(frozen=True)
class Bar:
    """What a value must reach, or must not pass."""

    limit: float
    is_upper: bool = False

    def is_met(self, value: float) -> bool:
        return value <= self.limit if self.is_upper else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.is_upper else '≥'} {self.limit:g}"


@dataclass(frozen=True)
class Row:
    """One line of a table: a case of one part of a group, and how it stands against its bar."""

    part: str
    case: str
    seconds: float | None = None
    value: float | None = None
    unit: str = ""
    extra_mib: float | None = None
    bar: str = ""
    is_met: bool | None = None


def at_least(limit: float) -> Bar:
    return Bar(limit)


def at_most(limit: float) -> Bar:
    return Bar(limit, is_upper=True)


def use_one_thread() -> None:
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))


def rows_of(module: str) -> list["Row"]:
    """Measure one group here."""
    rows: list[Row] = import_module(module).rows()
    return rows


def peer(library: str, prepare: Callable[[], Run]) -> Run | None:
    """Give the case of a peer, or None where its library is missing; the table then says so.

    `prepare` brings the input into the form the peer wants, which is not timed.
    """
    return prepare() if find_spec(library) else None


def measure(cases: Mapping[str, Run | None], *, rounds: int = ROUNDS) -> dict[str, Measurement]:
    """Run every case that is there once for its memory and then in rounds for its time."""
    present = {name: run for name, run in cases.items() if run is not None}
    memory = {name: _extra_bytes(run) for name, run in present.items()}
    seconds: dict[str, list[float]] = {name: [] for name in present}
    for _ in range(rounds):
        for name, run in present.items():
            if sum(seconds[name]) < BUDGET_S:
                seconds[name].append(_processor_time(run))
    return {name: Measurement(min(seconds[name]), memory[name]) for name in present}


def compare(
    part: str,
    cases: Mapping[str, Run | None],
    measured: Mapping[str, Measurement],
    *,
    ours: str,
    bars: Mapping[str, Bar],
) -> list[Row]:
    """Give one row per case, with its time as a multiple of ours."""
    rows = []
    for name in cases:
        if name not in measured:
            rows.append(Row(part, name, unit="not installed", bar=str(bars.get(name, ""))))
            continue
        cost = measured[name]
        ratio = cost.seconds / measured[ours].seconds
        extra_mib = None if cost.extra_bytes is None else cost.extra_bytes / MIB
        rows.append(_judged(part, name, ratio, "x ours", bars.get(name), cost.seconds, extra_mib))
    return rows


def growth(part: str, case: str, seconds: Mapping[int, float], bar: Bar) -> Row:
    """Judge the exponent p of time ~ size ** p between the two largest sizes."""
    small, large = sorted(seconds)[-2:]
    exponent = math.log(seconds[large] / seconds[small]) / math.log(large / small)
    return _judged(part, case, exponent, "exponent", bar)


def memory_per_row(part: str, case: str, cost: Measurement, n_rows: int, bar: Bar) -> Row:
    """Judge the extra peak memory of one call, divided by its rows."""
    if cost.extra_bytes is None:
        return Row(part, case, unit="not known on this system", bar=str(bar))
    return _judged(part, case, cost.extra_bytes / n_rows, "bytes per row", bar)


def memory_at(
    part: str,
    case: str,
    peak_bytes: Mapping[int, int],
    n_rows: int,
    bar: Bar,
    seconds: float | None = None,
) -> Row:
    """Judge the peak memory at `n_rows`, on the line through the peaks at the two largest sizes."""
    small, large = sorted(peak_bytes)[-2:]
    per_row = max(0.0, (peak_bytes[large] - peak_bytes[small]) / (large - small))
    expected = (peak_bytes[large] + per_row * (n_rows - large)) / GB
    unit = f"GB, {per_row:,.0f} bytes a row"
    return _judged(part, case, expected, unit, bar, seconds, peak_bytes[large] / MIB)


def share(part: str, case: str, ours: Measurement, other: Measurement, bar: Bar | None) -> Row:
    """Judge our extra peak memory as a share of somebody else's."""
    if ours.extra_bytes is None or not other.extra_bytes:
        return Row(part, case, unit="not known on this system", bar=str(bar or ""))
    return _judged(part, case, ours.extra_bytes / other.extra_bytes, "of theirs", bar)


def part_of(part: str, case: str, ours: Measurement, whole: Measurement, bar: Bar | None) -> Row:
    """Judge a time as a part of another."""
    value = ours.seconds / whole.seconds
    return _judged(part, case, value, "x the detector", bar, ours.seconds)


def timed(part: str, case: str, seconds: float, bar: Bar | None) -> Row:
    """Judge a time by itself, where there is nothing to compare it with."""
    return _judged(part, case, seconds, "s", bar, seconds)


def waited(part: str, case: str, seconds: float, total: float) -> Row:
    """Report the share of a time that was spent waiting."""
    return _judged(part, case, seconds / total, f"of {total:.1f} s", None, seconds)


def _judged(
    part: str,
    case: str,
    value: float,
    unit: str,
    bar: Bar | None,
    seconds: float | None = None,
    extra_mib: float | None = None,
) -> Row:
    is_met = None if bar is None else bar.is_met(value)
    return Row(part, case, seconds, value, unit, extra_mib, str(bar or ""), is_met)


def _processor_time(run: Run) -> float:
    gc.collect()
    start = time.process_time()
    run()
    return time.process_time() - start


def _extra_bytes(run: Run) -> int | None:
    """Call once and give how far the peak of resident memory rose above the start (Linux)."""
    run()  # imports and compiles, which is not what the case costs
    try:
        return_free_memory()
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    except OSError:
        return None
    before = _resident_bytes("VmRSS")
    run()
    return max(0, _resident_bytes("VmHWM") - before)


def return_free_memory() -> None:
    """Hand back to the system what the process holds without need."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise OSError(f"{key} is not in /proc/self/status")


def keep_no_free_memory() -> None:
    """Have every larger table handed back when it is freed, so that memory held is memory used."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, MIB)


def anonymous_bytes() -> int:
    """Give the memory of this process that no file stands behind (Linux)."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
