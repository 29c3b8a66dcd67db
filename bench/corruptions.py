"""Corrupting an image of 640 x 480: ours, and the fastest peer of the same definitions.

The 15 kinds of `imagenet-c` at severity 3, and their sum. Random draws differ between the two; the
tests compare what comes out.
"""

import warnings

import numpy as np

from bench.harness import Measurement, Row, Run, at_least, compare, measure, peer
from incognita.benchmarks.corruptions import corrupt, kinds_of

OURS, PEER = "incognita", "imagecorruptions-imaug"
SEVERITY = 3
BARS = {PEER: at_least(10)}


def rows() -> list[Row]:
    """Compare kind by kind, then the sums."""
    import cv2

    cv2.setNumThreads(1)
    image = scene()
    table, sums = [], {OURS: 0.0, PEER: 0.0}
    for kind in kinds_of("imagenet-c"):
        cases = cases_of(image, kind)
        measured = measure(cases)
        table += compare(kind, cases, measured, ours=OURS, bars={})
        for name, cost in measured.items():
            sums[name] += cost.seconds
    total = {name: Measurement(seconds, None) for name, seconds in sums.items() if seconds}
    return table + compare("sum of 15", dict.fromkeys(sums), total, ours=OURS, bars=BARS)


def cases_of(image: np.ndarray, kind: str) -> dict[str, Run | None]:
    return {
        OURS: lambda: corrupt(image, kind, SEVERITY, image_id="a"),
        PEER: peer("imagecorruptions", lambda: peer_corrupt(image, kind)),
    }


def peer_corrupt(image: np.ndarray, kind: str) -> Run:
    warnings.filterwarnings("ignore")
    import imagecorruptions

    return lambda: imagecorruptions.corrupt(image, severity=SEVERITY, corruption_name=kind)


def scene() -> np.ndarray:
    """Draw smooth colors with disks on them: what JPEG does with noise is not its usual work."""
    import cv2

    rng = np.random.default_rng(0)
    image = cv2.resize(rng.integers(0, 256, (30, 40, 3), np.uint8), (640, 480))
    for _ in range(20):
        center = (int(rng.integers(640)), int(rng.integers(480)))
        color = rng.integers(0, 256, 3).tolist()
        cv2.circle(image, center, int(rng.integers(5, 90)), color, -1)
    return image
