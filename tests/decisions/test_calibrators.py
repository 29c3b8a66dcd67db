"""Calibrators against scikit-learn, scipy and plain definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

from incognita.decisions import CALIBRATORS, calibrator_of
from incognita.decisions.calibrators import ClassCalibrators, State
from incognita.errors import InvalidDataError, UnknownNameError

GRID = np.linspace(0, 1, 201)
FITTING = sorted(set(CALIBRATORS.names()) - {"none"})


def sample(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.05, 0.95, n)
    is_hit = rng.random(n) < confidence**1.5
    return confidence, np.where(is_hit, rng.uniform(0.1, 1.0, n), 0.0)


def calibrated(name: str, confidence, quality, values=GRID) -> np.ndarray:
    calibrator = calibrator_of(name)
    return calibrator.apply(calibrator.fit(confidence, quality), values)


def test_linear_is_least_squares() -> None:
    confidence, quality = sample()
    slope, intercept = np.polyfit(confidence, quality, 1)
    expected = np.clip(intercept + slope * GRID, 0, 1)
    np.testing.assert_allclose(calibrated("linear", confidence, quality), expected, atol=1e-12)


def test_a_falling_line_becomes_the_mean_unless_it_is_asked_for() -> None:
    confidence, quality = np.array([0.2, 0.5, 0.8]), np.array([0.9, 0.6, 0.3])
    fitted = calibrator_of("linear").fit(confidence, quality)
    assert fitted.state is State.CONSTANT
    np.testing.assert_allclose(calibrated("linear", confidence, quality), 0.6)
    free = calibrated("linear(allow_negative=True)", confidence, quality, confidence)
    np.testing.assert_allclose(free, quality)


def test_isotonic_is_scikit_learns_with_flat_ends() -> None:
    confidence, quality = sample()
    expected = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(confidence, quality)
    measured = calibrated("isotonic", confidence, quality)
    np.testing.assert_allclose(measured, expected.predict(GRID), atol=1e-12)


@pytest.mark.parametrize(("name", "n_parameters"), [("platt", 2), ("temperature", 1)])
def test_logistic_maps_minimize_the_cross_entropy(name, n_parameters) -> None:
    confidence, quality = sample()
    logits = np.log(confidence / (1 - confidence))

    def loss(x) -> float:
        z = x[0] * logits + (x[1] if n_parameters == 2 else 0.0)
        return float(np.mean(np.logaddexp(0, z) - quality * z))

    best = minimize(loss, np.ones(n_parameters), tol=1e-14).x
    z = best[0] * logits + (best[1] if n_parameters == 2 else 0.0)
    measured = calibrated(name, confidence, quality, confidence)
    np.testing.assert_allclose(measured, 1 / (1 + np.exp(-z)), atol=2e-4)


def test_histogram_bins_hold_equally_many_and_return_their_mean() -> None:
    confidence, quality = sample(250)
    order = np.argsort(confidence)
    measured = calibrated("histogram", confidence, quality, confidence)
    for rows in np.split(order, 25):
        np.testing.assert_allclose(measured[rows], quality[rows].mean())


def test_few_detections_have_half_as_many_bins() -> None:
    fitted = calibrator_of("histogram").fit(*sample(31))
    assert len(fitted.parameters["values"]) == 15


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=2, max_size=40))
def test_equal_confidences_share_a_bin_and_the_mean_is_kept(rows) -> None:
    confidence = np.array([p / 5 for p, _ in rows])
    quality = np.array([q / 4 for _, q in rows])
    measured = calibrated("histogram(n_bins=4)", confidence, quality, confidence)
    np.testing.assert_allclose(measured.mean(), quality.mean(), atol=1e-12)
    for level in np.unique(confidence):
        assert len(np.unique(measured[confidence == level])) == 1


@pytest.mark.parametrize("name", FITTING)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.one_of(st.just(0.0), st.floats(0.1, 1))), max_size=30)
)
def test_every_map_is_defined_on_the_whole_interval(name, rows) -> None:
    confidence, quality = np.array([p for p, _ in rows]), np.array([q for _, q in rows])
    measured = calibrated(name, confidence, quality)
    assert np.isfinite(measured).all()
    assert measured.min() >= 0
    assert measured.max() <= 1
    if name != "histogram":  # binning may fall
        assert (np.diff(measured) >= -1e-12).all()


@pytest.mark.parametrize("name", FITTING)
def test_classes_with_little_data_have_a_state(name) -> None:
    calibrator = calibrator_of(name)
    none, one = np.zeros(0), np.array([0.7])
    assert calibrator.fit(none, none)[:2] == (State.IDENTITY, 0)
    assert calibrator.apply(calibrator.fit(none, none), GRID).tolist() == GRID.tolist()
    single = calibrator.fit(one, np.array([0.4]))
    assert single[:2] == (State.CONSTANT, 1)
    assert calibrator.apply(single, GRID).tolist() == [0.4] * len(GRID)
    same = calibrator.fit(np.full(5, 0.7), np.array([0, 0, 1, 1, 0.5]))
    assert same[:2] == (State.CONSTANT, 5)


def test_no_calibration_changes_nothing() -> None:
    assert calibrated("none", *sample()).tolist() == GRID.tolist()


def test_each_class_has_a_map_of_its_own() -> None:
    confidence, quality = sample(90)
    labels = np.arange(90) % 3
    quality[labels == 2] = 1 - quality[labels == 2]
    kind = calibrator_of("linear")
    fitted = ClassCalibrators.fit(kind, confidence, quality, labels, 4)
    measured = fitted.apply(confidence, labels)
    for k in range(3):
        rows = labels == k
        alone = kind.apply(kind.fit(confidence[rows], quality[rows]), confidence[rows])
        assert measured[rows].tolist() == alone.tolist()
    assert fitted.per_class[3].state is State.IDENTITY
    assert fitted.counts() == {"fitted": 2, "constant": 1, "identity": 1}


def test_bad_input_is_a_sentence() -> None:
    with pytest.raises(InvalidDataError, match="between 0 and 1"):
        calibrator_of("linear").fit(np.array([0.5, 1.5]), np.zeros(2))
    with pytest.raises(UnknownNameError, match="Did you mean isotonic"):
        calibrator_of("isotonik")
    with pytest.raises(InvalidDataError, match="at least 1"):
        calibrator_of("histogram(n_bins=0)")
