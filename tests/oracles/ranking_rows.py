"""Rows that tests of ranking metrics share, and the false positive rate as scikit-learn has it."""

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

DTYPES = [np.float32, np.float64]


@st.composite
def tied_rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[Fraction]]:
    """A few rows of each class whose scores come from a small pool of any finite numbers."""
    dtype = draw(st.sampled_from(DTYPES))
    floats = st.floats(allow_nan=False, allow_infinity=False, width=np.finfo(dtype).bits)
    pool = [0.0, -0.0, *draw(st.lists(floats, max_size=4))]
    is_unknown = [True, False, *draw(st.lists(st.booleans(), max_size=10))]
    rows = len(is_unknown)
    score = draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))
    tenths = [1, 1, *draw(st.lists(st.integers(0, 5), min_size=rows - 2, max_size=rows - 2))]
    return np.array(score, dtype), np.array(is_unknown), [Fraction(n, 10) for n in tenths]


def random_rows(
    seed: int, dtype: type, *, n_rows: int = 2000, decimals: int = 9
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    is_unknown = rng.random(n_rows) < 0.3
    score = np.round(rng.standard_normal(n_rows) + is_unknown, decimals)
    return score.astype(dtype), is_unknown


def levels(n_known: int, n_unknown: int, n_levels: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The same number of rows of each class at every level."""
    is_unknown = np.repeat([False, True], [n_known, n_unknown])
    score = np.repeat(np.arange(n_levels, dtype=float), n_known + n_unknown)
    return score, np.tile(is_unknown, n_levels)


def fpr_at_95(is_positive: np.ndarray, score: np.ndarray, weights: np.ndarray | None) -> float:
    fpr, tpr, _ = sklearn_metrics.roc_curve(
        is_positive, score, sample_weight=weights, drop_intermediate=False
    )
    return fpr[np.argmax(tpr >= 0.95)]
