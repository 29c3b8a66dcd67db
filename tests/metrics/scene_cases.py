"""Random scenes of every kind of trouble, for comparing box metrics with the oracles."""

import numpy as np
from tests.oracles.scenes import Scene, random_scene

KINDS = {
    "plain": {},
    "ties": {"with_ties": True},
    "crowd": {"with_crowd": True},
    "difficult": {"with_difficult": True},
    "empty images": {"with_empty_images": True},
    "class without truth": {"classes_without_truth": 1},
    "class without detections": {"classes_without_detections": 1},
    "all at once": {
        "with_ties": True,
        "with_crowd": True,
        "with_difficult": True,
        "with_empty_images": True,
        "classes_without_truth": 1,
        "classes_without_detections": 1,
        "n_known": 5,
        "unknown_names": ("unknown", "deer"),
    },
}
CASES = [(kind, seed) for kind in KINDS for seed in range(6)]


def make_scene(kind: str, seed: int) -> Scene:
    options = {"n_images": 10, "n_known": 3} | KINDS[kind]
    return random_scene(np.random.default_rng(seed), **options)
