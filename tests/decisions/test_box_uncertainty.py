"""Uncertainties of boxes against their definitions."""

import numpy as np
import pytest
from tests.oracles import self_aware as oracle

from incognita.containers.boxes import Detections
from incognita.containers.classes import Classes
from incognita.decisions import BOX_UNCERTAINTIES, uncertainty_of
from incognita.errors import InvalidDataError, UnknownNameError

RNG = np.random.default_rng(0)
N, K = 40, 5
LOGITS, BACKGROUND = RNG.normal(0, 4, (N, K)), RNG.normal(0, 4, N)
VARIANCES = RNG.uniform(0.1, 30, (N, 4))


def boxes(**columns) -> Detections:
    xyxy = np.tile([0.0, 0.0, 4.0, 4.0], (N, 1))
    confidence = np.linspace(0, 1, N)
    classes = Classes(tuple("abcde"))
    return Detections([0], [0, N], xyxy, confidence, np.zeros(N, int), classes, **columns)


SOFTMAX = boxes(logits=LOGITS, background=BACKGROUND, covariance=VARIANCES)
SIGMOID = boxes(logits=LOGITS, covariance=VARIANCES)
WITH_BACKGROUND = np.column_stack([LOGITS, BACKGROUND]).tolist()


def expected(name: str, logits: list[list[float]]) -> list[float]:
    categorical = [oracle.entropy(oracle.softmax(row)) for row in logits]
    gaussian = [oracle.gaussian_entropy(row) for row in VARIANCES.tolist()]
    return {
        "confidence": (1 - np.linspace(0, 1, N)).tolist(),
        "entropy": categorical,
        "mean-entropy": [np.mean([oracle.sigmoid_entropy(s) for s in row]) for row in logits],
        "max-class-entropy": [oracle.sigmoid_entropy(max(row)) for row in logits],
        "dempster-shafer": [oracle.dempster_shafer(row) for row in logits],
        "determinant": [np.prod(row) for row in VARIANCES.tolist()],
        "trace": [sum(row) for row in VARIANCES.tolist()],
        "gaussian-entropy": gaussian,
        "balanced": [4 * c + g for c, g in zip(categorical, gaussian, strict=True)],
        "normalized": (_scaled(categorical) + _scaled(gaussian)).tolist(),
    }[name]


def _scaled(values: list[float]) -> np.ndarray:
    array = np.array(values)
    return (array - array.min()) / (array.max() - array.min())


@pytest.mark.parametrize("name", BOX_UNCERTAINTIES.names())
def test_a_sigmoid_head_follows_the_definition(name) -> None:
    measured = uncertainty_of(name).fit(SIGMOID).of(SIGMOID)
    np.testing.assert_allclose(measured, expected(name, LOGITS.tolist()), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["entropy", "dempster-shafer", "balanced", "normalized"])
def test_a_softmax_head_counts_background(name) -> None:
    measured = uncertainty_of(name).fit(SOFTMAX).of(SOFTMAX)
    np.testing.assert_allclose(measured, expected(name, WITH_BACKGROUND), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["mean-entropy", "max-class-entropy"])
def test_sigmoid_measures_refuse_a_softmax_head(name) -> None:
    with pytest.raises(InvalidDataError, match="sigmoid heads"):
        uncertainty_of(name).of(SOFTMAX)


def test_entropies_are_not_negative_as_the_equations_print_them() -> None:
    assert uncertainty_of("mean-entropy").of(SIGMOID).min() >= 0
    assert uncertainty_of("max-class-entropy").of(SIGMOID).min() >= 0


def test_huge_logits_stay_finite() -> None:
    huge = boxes(logits=np.where(LOGITS > 0, 1e4, -1e4))
    for name in ("entropy", "mean-entropy", "max-class-entropy", "dempster-shafer"):
        values = uncertainty_of(name).of(huge)
        assert np.isfinite(values).all(), name
        assert (values >= 0).all(), name


@pytest.mark.parametrize("name", sorted(set(BOX_UNCERTAINTIES.names()) - {"confidence"}))
def test_what_is_missing_is_named(name) -> None:
    with pytest.raises(InvalidDataError, match="these detections have none"):
        uncertainty_of(name).fit(boxes()).of(boxes())


@pytest.mark.parametrize("name", BOX_UNCERTAINTIES.names())
def test_without_boxes_no_column_is_needed(name) -> None:
    measure = uncertainty_of(name).fit(SIGMOID)
    none = np.zeros(N, bool)
    for nothing in (Detections.empty([1, 2], SIGMOID.classes), boxes()[none], SIGMOID[none]):
        assert measure.of(nothing).shape == (0,)
    if name not in ("mean-entropy", "max-class-entropy"):
        assert measure.of(SOFTMAX[none]).shape == (0,)


def test_a_range_is_needed_before_use() -> None:
    with pytest.raises(InvalidDataError, match="Fit it"):
        uncertainty_of("normalized").of(SIGMOID)


def test_new_boxes_are_scaled_by_the_range_of_validation() -> None:
    fitted = uncertainty_of("normalized").fit(SIGMOID[np.arange(N) < 20])
    assert fitted.of(SIGMOID).max() > 0
    assert fitted == fitted.fit(SIGMOID[np.arange(N) < 20])


@pytest.mark.parametrize("wrong", [0.0, -1.0])
def test_a_variance_that_is_not_positive_is_refused(wrong) -> None:
    variances = VARIANCES.copy()
    variances[7, 2] = wrong
    with pytest.raises(InvalidDataError, match=r"above 0.* in row 7"):
        boxes(covariance=variances)


def test_a_wrong_name_gets_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean entropy"):
        uncertainty_of("entropi")
