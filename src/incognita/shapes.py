"""Array types with shapes: `Float[np.ndarray, "images classes"]`.

Tests check them with jaxtyping and beartype. Elsewhere they are plain annotations, so that commands
do not wait for the import of jaxtyping.
"""

import sys
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool as Bool
    from jaxtyping import Float as Float
    from jaxtyping import Float64 as Float64
    from jaxtyping import Int as Int
    from jaxtyping import Real as Real
    from jaxtyping import Shaped as Shaped
    from jaxtyping import UInt as UInt
    from jaxtyping import UInt8 as UInt8
    from jaxtyping import UInt16 as UInt16
else:
    Bool = Float = Float64 = Int = Real = Shaped = UInt = UInt8 = UInt16 = Annotated
