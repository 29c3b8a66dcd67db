"""Random draws that belong to one image, kind and severity: no order of calls matters."""

import json
from hashlib import blake2b


class Draws:
    """Random numbers as a function of what they belong to and of the name of each draw.

    The text of all names is hashed (BLAKE2b), so that the numbers are the same in every process,
    on every machine and with every version of NumPy.

    >>> draws = Draws(0, "a.jpg", "motion_blur", 3)
    >>> round(draws.uniform("angle", -45.0, 45.0), 3), draws.index("look", 6)
    (-12.7, 5)
    """

    def __init__(self, *owner: str | int) -> None:
        self.owner = owner

    def key(self, what: str) -> int:
        """Return 64 random bits, such as the key of a stream of numbers."""
        text = json.dumps([*self.owner, what])
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")

    def uniform(self, what: str, low: float, high: float) -> float:
        return low + (high - low) * ((self.key(what) >> 11) * 2.0**-53)

    def index(self, what: str, n: int) -> int:
        """Return a number from 0 to n - 1."""
        return self.key(what) * n >> 64
