"""All object-level methods together, against the forward pass of the detector that feeds them.

A Faster R-CNN with a ResNet-50 FPN on 320-pixel images, with a hundred boxes each: what
`incognita run` adds to running the detector as it is. Pooling the layers of LaRD and SAFE over the
boxes and all scores count as the methods'; the rows of whole extractions stand beside.
"""

import numpy as np
import torch
from torchvision.models.detection import fasterrcnn_resnet50_fpn

from bench.harness import Measurement, Row, at_most, measure, part_of
from incognita.containers.dataset import ArrayDataset
from incognita.containers.needs import Needs
from incognita.containers.outputs import ClassifierOutputs
from incognita.evaluation.select_methods import Capabilities, select_methods
from incognita.extraction.extra_outputs import PerturbedLayers
from incognita.extraction.extract import extract
from incognita.extraction.feature_maps import pool_boxes
from incognita.methods.method import Method
from incognita.models.detector import Detector, wrap_detector

N_IMAGES, N_TRAIN, SIDE, N_CLASSES = 6, 24, 320, 20
BAR = 0.15
EVERYTHING = Capabilities(~Needs.MEMBERS, rows_are_boxes=True, n_layers=5)
PART = f"Faster R-CNN, {SIDE} pixels, 100 boxes"


def rows() -> list[Row]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = fasterrcnn_resnet50_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=N_CLASSES + 1,
        min_size=SIDE,
        max_size=SIDE,
        box_score_thresh=0.0,
    ).eval()
    detector = wrap_detector(network)
    methods = fitted(detector)
    tested = pictures(N_IMAGES, seed=1)
    scored = extract(detector, tested, layers=True).outputs.rows()
    assert len(scored) == 100 * N_IMAGES
    images = [detector.preprocess(image).pixels for image in tested.images]

    def as_it_is() -> None:
        with torch.no_grad():
            for image in images:
                network([image])

    with torch.no_grad():
        seen = [detector.forward(image[None], [(SIDE, SIDE)], layers=True) for image in images]

    def pool() -> None:
        for out in seen:
            pool_boxes(out.maps, [image.rois for image in out.images], out.input_size)

    cases = {
        "the detector as it is": as_it_is,
        "boxes, logits, features": lambda: extract(detector, tested),
        "and pooled layers": lambda: extract(detector, tested, layers=True),
        "pooling layers": pool,
        f"scores of {len(methods)} methods": lambda: score(methods, scored),
    }
    return judged(measure(cases, rounds=3))


def judged(measured: dict[str, Measurement]) -> list[Row]:
    """Relate everything to the plain forward passes, and judge the sum of what is ours.

    Pooling and scores are timed by themselves: the difference of two runs of the detector is
    mostly noise.
    """
    plain, _, _, pooling, scoring = measured.values()
    whole = Measurement(pooling.seconds + scoring.seconds, None)
    cases = dict(measured) | {"all methods together": whole}
    return [
        part_of(PART, name, cost, plain, at_most(BAR) if cost is whole else None)
        for name, cost in cases.items()
    ]


def pictures(n: int, seed: int) -> ArrayDataset:
    images = np.random.default_rng(seed).integers(0, 256, (n, SIDE, SIDE, 3), dtype=np.uint8)
    return ArrayDataset("pictures", tuple(map(str, range(n))), images)


def fitted(detector: Detector) -> list[Method]:
    """Every method that boxes can feed, fitted on boxes of other pictures."""
    extra_outputs = [PerturbedLayers()]
    known = extract(detector, pictures(N_TRAIN, 0), layers=True, extra_outputs=extra_outputs)
    methods = select_methods("all", EVERYTHING).methods.values()
    return [method.fit(known.outputs.rows()) for method in methods]


def score(methods: list[Method], boxes: ClassifierOutputs) -> None:
    with torch.no_grad():
        for method in methods:
            method.score(boxes)
