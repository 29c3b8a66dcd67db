"""What makes a method the same method: its parameters and its code."""

import math
from hashlib import sha256
from typing import Any

import numpy as np
from torch import Tensor

from incognita import __version__
from incognita.methods.method import Method
from incognita.models.fingerprints import describe_callable


def code_of(method: Method) -> str:
    """Give what changes when a method's own code does: our version, or a hash of its class."""
    kind, then = type(method), getattr(method, "then", None)
    is_ours = kind.__module__.startswith("incognita.")
    own = f"incognita {__version__}" if is_ours else describe_callable(kind)
    return f"{own}, {code_of(then)}" if isinstance(then, Method) else own


def describe(method: Method) -> dict[str, Any]:
    """Give the parameters of a method and of the one it hands over to, as JSON can hold them."""
    own = {name: _plain(value) for name, value in method.parameters().items()}
    then = getattr(method, "then", None)
    return own | {"then": {then.title: describe(then)}} if isinstance(then, Method) else own


def _plain(value: Any) -> Any:
    """Write a value of any kind so that JSON can hold it and another value is written otherwise."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, np.ndarray | Tensor):
        data = np.ascontiguousarray(
            value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        )
        return f"array {data.dtype} {list(data.shape)} {sha256(data.tobytes()).hexdigest()[:16]}"
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return value if value is None or is_number or isinstance(value, str) else repr(value)
