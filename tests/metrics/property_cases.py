"""What the property tests share: scenes without ties, and which property each metric has.

A metric that a certificate gains must be entered in `TRAITS`, or a test fails; likewise a
convention in `CONTINUOUS` or `PIXELS`, and a ranking metric in `RANKING`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Flag, auto
from functools import cache

import numpy as np
import pytest
from tests.oracles.scenes import UNKNOWN, Scene, Xyxy, random_scene, to_containers

from incognita.evaluation.certify import Certificate, certify
from incognita.metrics import suite as measuring
from incognita.metrics.measure import MetricValue, every_image_once
from incognita.metrics.suite import MatchTables
from incognita.results.result import Result

SEEDS = range(4)

Key = tuple[str, str, str]


class Trait(Flag):
    """What holds of a metric, whatever the scene."""

    ORDER = auto()  # a rising map of the confidences changes nothing
    COPIES = auto()  # every image twice changes nothing
    SHARE = auto()  # between 0 and 1 in every convention; else only not negative
    GROWS = auto()  # one more detection, less sure than all others, never lowers it
    SIZED = auto()  # depends on the size of objects in pixels


RANKED = Trait.ORDER | Trait.COPIES | Trait.SHARE | Trait.GROWS
SHARES = Trait.ORDER | Trait.COPIES | Trait.SHARE
CALIBRATED = Trait.COPIES | Trait.SHARE

TRAITS = {
    **dict.fromkeys(("ap", "ap50", "ap75", "map_known", "unknown_ap", "ap_all"), RANKED),
    **dict.fromkeys(("ap_superclass", "ar1", "ar10", "ar100", "unknown_recall"), RANKED),
    **dict.fromkeys(("ap_small", "ap_medium", "ap_large"), RANKED | Trait.SIZED),
    **dict.fromkeys(("ar_small", "ar_medium", "ar_large"), RANKED | Trait.SIZED),
    **dict.fromkeys(("unknown_precision", "images_without_detection"), SHARES),
    "known_precision": SHARES,
    "false_alarm_rate": SHARES,
    "known_recall": RANKED,
    "unknown_objects_without_detection": SHARES,
    **dict.fromkeys(("lrp", "lrp_localization", "optimal_lrp"), SHARES),
    **dict.fromkeys(("lrp_false_positive", "lrp_false_negative"), SHARES),
    **dict.fromkeys(("laece", "laace", "d_ece"), CALIBRATED),
    "open_set_error": Trait.ORDER,  # a count: it doubles
    # by detections it can exceed one
    "normalized_open_set_error": Trait.ORDER | Trait.COPIES,
    "wilderness_ratio": Trait.ORDER | Trait.COPIES,
    # the recall nearest to 0.8 is another one where copies of an object are found one by one
    "wilderness_impact": Trait.ORDER,
}
CONTINUOUS = {"paper", "coco", "saod", "detection-calibration"}
PIXELS = {"voc07", "owod", "owdetr", "opendet", "fmiyc"}  # boxes are ranges of whole pixels
WRITTEN = PIXELS - {"voc07"}  # confidences have three decimals
RANKING = {
    "auroc",
    "aupr_unknown",
    "aupr_known",
    "aupr_unknown_trapezoid",
    "aupr_known_trapezoid",
    "fpr_at_95_unknown_recall",
    "fpr_at_95_known_recall",
    "detection_error",
    "detection_error_at_95_known_recall",
}


def untied_scene(seed: int, **changes: object) -> Scene:
    """A scene with every kind of trouble except equal confidences; three decimals tell them apart.

    Corners and sizes are whole pixels, so that moving and scaling boxes is exact.
    """
    rng = np.random.default_rng(seed)
    options = {
        "n_images": 8,
        "n_known": 2 + seed % 3,
        "classes_without_truth": seed % 2,
        "unknown_names": (UNKNOWN, "deer") if seed % 4 else (UNKNOWN,),
    }
    scene = random_scene(rng, **{**options, **changes})
    thousandths = rng.choice(np.arange(2, 1000), len(scene.detections), replace=False)
    detections = [
        replace(d, score=k / 1000)
        for d, k in zip(scene.detections, thousandths.tolist(), strict=True)
    ]
    return with_boxes(replace(scene, detections=detections), whole_pixels)


def whole_pixels(xyxy: Xyxy) -> Xyxy:
    x1, y1, x2, y2 = (float(round(value)) for value in xyxy)
    return (x1, y1, max(x2, x1 + 1), max(y2, y1 + 1))


def with_boxes(scene: Scene, change: Callable[[Xyxy], Xyxy], *, area: float = 1.0) -> Scene:
    """Give a scene with other boxes; the areas of objects change by a factor."""
    detections = [replace(d, xyxy=change(d.xyxy), size=None) for d in scene.detections]
    truths = [
        replace(t, xyxy=change(t.xyxy), size=None, area=round(t.area) * area) for t in scene.truths
    ]
    return replace(scene, detections=detections, truths=truths)


def with_scores(scene: Scene, change: Callable[[float], float]) -> Scene:
    return replace(scene, detections=[replace(d, score=change(d.score)) for d in scene.detections])


def certified(scene: Scene, **options: object) -> dict[Key, Result]:
    """Every result of a certificate by metric, convention and split."""
    return by_key(certify(*to_containers(scene)[::-1], **({"n_resamples": 0} | options)))


def by_key(certificate: Certificate) -> dict[Key, Result]:
    return {(r.metric, r.convention, r.split): r for r in certificate.results}


@cache
def certified_as_it_is(seed: int) -> dict[Key, Result]:
    """The results of an untied scene, computed once for all tests."""
    return certified(untied_scene(seed))


OPEN_SET = (
    lambda evidence, weights: measuring.open_set_papers(evidence, weights, unknown_only=True),
    measuring.open_set_codes,
)
EVERYTHING = (
    *OPEN_SET,
    measuring.closed_set,
    lambda evidence, weights: measuring.localization_recall_precision(evidence, weights, tau=None),
    lambda evidence, weights: measuring.calibrated(evidence, weights, tau=None),
)


def measured(
    scene: Scene, counts: np.ndarray | None = None, *, steps: tuple = EVERYTHING
) -> dict[tuple[str, str], MetricValue]:
    """Every metric on all images, each of which counts so often."""
    weights = every_image_once(scene.n_images)
    if counts is not None:
        weights = counts[:, None].astype(np.float32)
    evidence = MatchTables(*to_containers(scene))
    return {(m, c): measure for step in steps for m, c, measure in step(evidence, weights)}


def keys_with(results: dict[Key, Result], trait: Trait) -> list[Key]:
    return [key for key in results if TRAITS[key[0]] & trait]


def assert_same(
    before: dict[Key, Result],
    after: dict[Key, Result],
    keys: Iterable[Key] | None = None,
    *,
    times: float = 1.0,
    tolerance: float = 1e-12,
) -> None:
    """Compare values, and reasons where there is none."""
    assert before.keys() == after.keys()
    keys = list(before if keys is None else keys)
    assert keys
    for key in keys:
        expected = times * before[key].value
        assert after[key].value == pytest.approx(expected, abs=tolerance, nan_ok=True), key
        assert after[key].reason == before[key].reason, key
