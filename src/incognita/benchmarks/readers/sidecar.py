"""The arrays that COCO's results format has no place for: logits and features, as safetensors."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from incognita.errors import InvalidDataError, MissingDataError
from incognita.files import replacing
from incognita.shapes import Shaped

_NAMES = ("logits", "features")


def load_sidecar(path: Path, n_rows: int) -> dict[str, Shaped[np.ndarray, "rows _"]]:
    """Read `logits` [rows, classes] and `features` [rows, d], or one of them."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.is_file():
        raise MissingDataError(f"There is no safetensors file at {path}; check the path.")
    try:
        arrays = load_file(path)
    except (SafetensorError, TypeError, KeyError, AttributeError) as error:
        # the last three are what a type NumPy does not have, as bfloat16, ends in
        raise InvalidDataError(
            f"{path} cannot be read as safetensors: {error}; write float16, float32 or float64."
        ) from error
    if not arrays or set(arrays) - set(_NAMES):
        raise InvalidDataError(
            f"{path} holds {sorted(arrays)}, but logits, features or both are expected; rename "
            f"them."
        )
    for name, array in arrays.items():
        _check(path, name, array, n_rows)
    return arrays


def save_sidecar(path: Path, arrays: Mapping[str, Shaped[np.ndarray, "rows _"]]) -> None:
    """Write arrays as safetensors, as a whole or not at all."""
    from safetensors.numpy import save_file

    with replacing(path) as temporary:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary)


def _check(path: Path, name: str, array: np.ndarray, n_rows: int) -> None:
    if array.ndim != 2 or array.dtype.kind != "f":
        raise InvalidDataError(
            f"{path}: {name} must be floats in rows and columns, but they are {array.dtype} of "
            f"shape {list(array.shape)}."
        )
    if len(array) != n_rows:
        raise InvalidDataError(
            f"{path}: {name} have {len(array)} rows, but there are {n_rows} detections; "
            f"write one row per record of the list, in its order."
        )
    is_wrong = ~np.isfinite(array).all(axis=1)
    if is_wrong.any():
        raise InvalidDataError(
            f"{path}: row {int(is_wrong.argmax())} of {name} is not finite; look at that detection."
        )
