"""One pass over boxes that says whether anything at all is wrong with them."""

import numba
import numpy as np

Array = np.ndarray


@numba.njit(cache=True, nogil=True, error_model="numpy")
def are_sound(xyxy: Array, sizes: Array) -> bool:
    """Whether all boxes are finite, not inside out, and as large as their sizes say.

    Which of these a bad box breaks is for slower checks to find out and to say.
    """
    for i in range(xyxy.shape[0]):
        for side in range(2):
            low, high, size = xyxy[i, side], xyxy[i, 2 + side], sizes[i, side]
            slack = 1e-6 * (1.0 + abs(high))
            # written so that NaN, which compares as false, is found as well
            if not (low <= high and abs(high - low - size) <= slack and slack < np.inf):
                return False
        if not sizes[i, 0] * sizes[i, 1] < np.inf:
            return False
    return True
