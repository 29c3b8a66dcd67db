"""Array types with shapes: `Float[np.ndarray, "images classes"]`.

Tests check them with jaxtyping and beartype. Outside tests annotations are for readers only, and
commands start faster without importing jaxtyping: there they are plain types.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool as Bool
    from jaxtyping import Float as Float
    from jaxtyping import Float64 as Float64
    from jaxtyping import Int as Int
    from jaxtyping import Real as Real
    from jaxtyping import Shaped as Shaped
    from jaxtyping import UInt as UInt
    from jaxtyping import UInt16 as UInt16
else:

    class _Array:
        """An array type whose shape is ignored."""

        def __class_getitem__(cls, array_and_shape: tuple[type, str]) -> Any:
            return array_and_shape[0]

    Bool = Float = Float64 = Int = Real = Shaped = UInt = UInt16 = _Array
