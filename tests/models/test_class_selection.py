"""Some classes of a detector, in another order: boxes, logits and heads go along."""

import pickle

import numpy as np
import pytest
import torch
from tests.extraction.tiny_detector import GridDetector

from incognita.errors import InvalidDataError
from incognita.models.detector import Detector, select_classes


def both() -> tuple[torch.Tensor, GridDetector, Detector]:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (4, 4, 3)).astype(np.uint8).repeat(8, axis=0).repeat(8, axis=1)
    detector = GridDetector().with_filter(score_threshold=0.01)
    batch = detector.preprocess(image).pixels[None]
    return batch, detector, select_classes(detector, ("sky", "lava"), (2, 0))


def test_boxes_of_other_classes_go_and_the_others_keep_their_rows() -> None:
    batch, detector, chosen = both()
    (all_boxes,) = detector.forward(batch, [(32, 32)]).images
    (some,) = chosen.forward(batch, [(32, 32)]).images
    is_ours = all_boxes.class_ids != 1
    assert 0 < int(is_ours.sum()) < len(is_ours)
    torch.testing.assert_close(some.xyxy, all_boxes.xyxy[is_ours])
    torch.testing.assert_close(some.logits, all_boxes.logits[is_ours][:, [2, 0]])
    renamed = {2: 0, 0: 1}
    assert some.class_ids.tolist() == [renamed[k] for k in all_boxes.class_ids[is_ours].tolist()]
    torch.testing.assert_close(chosen.heads[0](some.features), some.logits)


def test_it_is_a_detector_with_a_key_of_its_own_and_reaches_other_processes() -> None:
    batch, detector, chosen = both()
    assert isinstance(chosen, Detector)
    hashes = {detector.weights_hash, chosen.weights_hash}
    hashes.add(select_classes(detector, ("lava", "sky"), (0, 2)).weights_hash)
    assert len(hashes) == 3
    again = pickle.loads(pickle.dumps(chosen))
    torch.testing.assert_close(
        again.forward(batch, [(32, 32)]).images[0].logits,
        chosen.forward(batch, [(32, 32)]).images[0].logits,
    )


def test_rules_reach_the_inner_detector() -> None:
    batch, _, chosen = both()
    changed = chosen.with_filter(max_per_image=1)
    assert changed.rules.max_per_image == 1 == changed.inner.rules.max_per_image
    assert len(changed.forward(batch, [(32, 32)]).images[0].xyxy) <= 1


def test_places_that_are_not_there_or_come_twice_are_refused() -> None:
    with pytest.raises(InvalidDataError, match="places from 0 to 2, the classes of grid"):
        select_classes(GridDetector(), ("a", "b"), (0, 7))
    with pytest.raises(InvalidDataError, match="one place per class name, without repetition"):
        select_classes(GridDetector(), ("a", "b"), (1, 1))
