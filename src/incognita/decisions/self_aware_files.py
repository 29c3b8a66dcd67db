"""Files of self-aware rules: what they are as JSON, their arrays as safetensors beside it."""

import json
from dataclasses import asdict
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from incognita.decisions import BOX_UNCERTAINTIES
from incognita.decisions.calibrators import (
    Calibrator,
    ClassCalibrator,
    ClassCalibrators,
    State,
)
from incognita.decisions.parse import calibrator_of
from incognita.decisions.self_aware import SelfAware
from incognita.decisions.thresholds import ConfidenceThreshold, UnknownThreshold
from incognita.errors import IncognitaError, InvalidDataError, MissingDataError
from incognita.files import json_path, load_json, replacing, replacing_text
from incognita.metrics.self_awareness import Aggregation

FORMAT = "incognita.self-aware.2"
_WITHOUT_HASH = "incognita.self-aware.1"  # still read; its arrays cannot be checked


def save_self_aware(fitted: SelfAware, path: str | PathLike[str]) -> None:
    """Save the rules as JSON, and their arrays as safetensors beside it; no code is inside.

    Args:
        fitted: The rules.
        path: A file that ends in `.json`; the arrays get the same name with `.safetensors`.
    """
    from safetensors.numpy import save

    path = json_path(path)
    arrays = {"confidence_threshold": fitted.confidence_threshold.per_class}
    for k, calibrator in enumerate(fitted.calibrators.per_class):
        arrays |= {f"calibrator.{k}.{name}": a for name, a in calibrator.parameters.items()}
    packed = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    document = _describe(fitted) | {"arrays_sha256": sha256(packed).hexdigest()}
    with replacing_text(path) as file:
        json.dump(document, file, indent=1)
        # before the JSON takes its place, so that both do or neither
        with replacing(path.with_suffix(".safetensors")) as unfinished:
            # not `save_file`, whose files only their owner may read
            unfinished.write_bytes(packed)


def load_self_aware(path: str | PathLike[str]) -> SelfAware:
    """Load rules that `save_self_aware` wrote; they decide as the saved ones."""
    path = json_path(path)
    document = load_json(path)
    if not isinstance(document, dict) or document.get("format") not in (FORMAT, _WITHOUT_HASH):
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise InvalidDataError(
            f"Expected rules of the format {FORMAT!r} in {path}, got {found!r:.80}. Fit them again."
        )
    arrays = _load_arrays(path.with_suffix(".safetensors"), document)
    try:
        return _rebuild(document, arrays)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        if isinstance(error, IncognitaError):
            raise
        raise InvalidDataError(
            f"{path} is incomplete or damaged ({error!r:.80}). Fit it again."
        ) from error


def _load_arrays(path: Path, document: dict[str, Any]) -> dict[str, np.ndarray]:
    """Load the arrays of rules, which must be those that the JSON was saved with."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not path.is_file():
        raise MissingDataError(f"There is no file at {path}, which holds the arrays of the rules.")
    content = path.read_bytes()
    is_checked = document["format"] != _WITHOUT_HASH
    if is_checked and sha256(content).hexdigest() != document.get("arrays_sha256"):
        raise InvalidDataError(
            f"Expected the arrays of {path.with_suffix('.json')} in {path}, got those of other "
            f"rules. Copy both files together, or fit the rules again."
        )
    try:
        return dict(load(content))
    except (SafetensorError, TypeError, KeyError) as error:
        raise InvalidDataError(f"{path} is not safetensors: {error}. Fit it again.") from error


def _describe(fitted: SelfAware) -> dict[str, Any]:
    v = fitted.confidence_threshold
    states = [
        {"class": name, "state": str(calibrator.state), "n_detections": calibrator.n_detections}
        for name, calibrator in zip(fitted.known_names, fitted.calibrators.per_class, strict=True)
    ]
    return {
        "format": FORMAT,
        "convention": fitted.convention,
        "uncertainty": {"kind": fitted.uncertainty.name, **asdict(fitted.uncertainty)},  # type: ignore[call-overload]
        "aggregation": fitted.aggregation.value,
        "top": fitted.top,
        "max_per_image": fitted.max_per_image,
        "image_threshold": asdict(fitted.image_threshold),
        "confidence_threshold": {
            "policy": v.policy,
            "other_classes": v.other_classes,
            "metadata": v.metadata,
        },
        "calibrator": str(fitted.calibrators.kind),
        "classes": states,
        "metadata": fitted.metadata,
    }


def _rebuild(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> SelfAware:
    parameters = dict(document["uncertainty"])
    uncertainty = BOX_UNCERTAINTIES.get(parameters.pop("kind"))(
        **{name: tuple(v) if isinstance(v, list) else v for name, v in parameters.items()}
    )
    names = _class_names(document)
    v = document["confidence_threshold"]
    u = UnknownThreshold(**document["image_threshold"])
    per_class = arrays["confidence_threshold"]
    if len(per_class) != len(names):
        raise ValueError(f"{len(per_class)} thresholds of {len(names)} classes")
    threshold = ConfidenceThreshold(
        per_class, v["policy"], v["metadata"], names, v["other_classes"]
    )
    _check_tables(metadata=document["metadata"], image=u.metadata, confidence=v["metadata"])
    calibrators = tuple(
        ClassCalibrator(
            State(entry["state"]), int(entry["n_detections"]), _parameters_of(k, arrays)
        )
        for k, entry in enumerate(document["classes"])
    )
    kind = calibrator_of(document["calibrator"])
    for name, calibrator in zip(names, calibrators, strict=True):
        _check_calibrator(kind, name, calibrator)
    return SelfAware(
        uncertainty,
        Aggregation(document["aggregation"]),
        int(document["top"]),
        int(document["max_per_image"]),
        u,
        threshold,
        ClassCalibrators(kind, calibrators),
        document["metadata"],
        document.get("convention", "paper"),  # rules of before there was a choice
    )


def _class_names(document: dict[str, Any]) -> tuple[str, ...]:
    names = tuple(entry["class"] for entry in document["classes"])
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError(f"the classes {names} are not distinct texts")
    return names


def _check_tables(**tables: Any) -> None:
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise TypeError(f"{name} is {type(table).__name__} and not a table")


def _check_calibrator(kind: Calibrator, name: str, fitted: ClassCalibrator) -> None:
    """Raise if the parameters of a class are not those of its kind and state."""
    names = set(fitted.parameters)
    expected = {State.IDENTITY: set[str](), State.CONSTANT: {"value"}}.get(fitted.state, names)
    confidence = np.linspace(0.0, 1.0, 7)  # what any map is defined on
    values = kind.apply(fitted, confidence)
    if names != expected or values.shape != confidence.shape or not np.isfinite(values).all():
        raise ValueError(f"the {kind} calibrator of {name} has wrong parameters")


def _parameters_of(k: int, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    prefix = f"calibrator.{k}."
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
