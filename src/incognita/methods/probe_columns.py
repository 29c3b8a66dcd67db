"""Finds what the pass recorded for a method among the columns of the outputs."""

from torch import Tensor

from incognita.containers.needs import Probe
from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError


def probe_columns(outputs: ClassifierOutputs, probe: Probe) -> dict[str, Tensor]:
    """Give the columns of a probe by their short names, or say that it was not recorded."""
    prefix = f"{probe.key}/"
    columns = outputs.probes or {}
    found = {name[len(prefix) :]: t for name, t in columns.items() if name.startswith(prefix)}
    if not found:
        raise InvalidDataError(
            f"The outputs do not hold the probe {probe.key}; "
            f"extract them with probes=method.probes()."
        )
    return found


def probe_column(outputs: ClassifierOutputs, probe: Probe, column: str) -> Tensor:
    """Give one column of a probe."""
    found = probe_columns(outputs, probe)
    if column not in found:
        raise InvalidDataError(
            f"The probe {probe.key} has no column {column!r} but {sorted(found)}; "
            f"extract the outputs again with probes=method.probes()."
        )
    return found[column]
