"""What a wrong adapter gives is refused in a sentence; one image that fails is only that image."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from tests.extraction.test_extract_boxes import scenes
from tests.extraction.tiny_detector import GridDetector, GridNetwork
from torch import nn

from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError
from incognita.extraction.extract import extract
from incognita.extraction.settings import Settings
from incognita.models.detector import BoxFilter, select_classes


@dataclass(eq=False)
class ChangedDetector(GridDetector):
    """The grid with something else in what it finds in an image."""

    change: Any = None

    def _found(self, features, logits, size):
        return self.change(super()._found(features, logits, size))


def extracted(change, *, n=6, batch_size=1, layers=False, **attributes):
    detector = ChangedDetector(change=change, **attributes)
    return extract(detector, scenes(n), layers=layers, settings=Settings(batch_size=batch_size))


def shifted(by):
    return lambda found: found._replace(class_ids=found.class_ids + by)


def with_background(found):
    return found._replace(logits=torch.cat([found.logits, found.logits[:, :1]], dim=1))


def repeated(found):
    return type(found)(*(None if c is None else c.repeat(40, *[1] * (c.ndim - 1)) for c in found))


def with_variances(value, width=4):
    return lambda found: found._replace(
        covariance=torch.full((len(found.xyxy), width), float(value))
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_background, "for its 3 classes; give one column per class, and background"),
        (shifted(1), "the class id 3, but its classes are 0 to 2"),
        (shifted(-1), "the class id -1, but its classes are 0 to 2"),
        (lambda f: f._replace(confidence=f.confidence[:-1]), "rows of confidence for"),
        (lambda f: f._replace(head_index=f.head_index + 7), "head_index outside its 1"),
        (lambda f: f._replace(confidence=f.confidence - 0.3), "but its score_threshold is 0.3"),
        (repeated, "boxes of an image, but its max_per_image is 100"),
        (with_variances(1.0, width=3), r"returned covariance of shape \[\d+, 3\] for"),
        (with_variances(0.0), r"returned the variances \[\[0.0, 0.0, 0.0, 0.0\]\], which must be"),
        (with_variances(-1.0), "which must be above 0"),
        (
            lambda f: with_variances(1.0)(f) if len(f.xyxy) else f,
            "returned covariance for some images only",
        ),
        (lambda f: f._replace(features=None), "returns no features as its input"),
        (
            lambda f: f._replace(logits=f.logits / 2),
            "reproduce its logits: they differ by up",
        ),
        (lambda f: f._replace(features=f.features[:, :5]), "a head from 8 features to 3 classes"),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_what_cannot_be_of_this_detector_is_refused(change, words, batch_size):
    with pytest.raises(InvalidDataError, match=words):
        extracted(change, batch_size=batch_size)


@pytest.mark.parametrize("change", [with_background, shifted(1), shifted(-1)])
def test_a_choice_of_classes_hides_no_wrong_column_or_class(change):
    chosen = select_classes(ChangedDetector(change=change), ("blue", "red"), (2, 0))
    with pytest.raises(InvalidDataError, match="classes"):
        extract(chosen, scenes(6))


@pytest.mark.parametrize("batch_size", [1, 4])
def test_features_of_some_images_only_are_refused(batch_size):
    calls = []

    def third(found):
        calls.append(found)
        return found._replace(features=None) if len(calls) == 3 else found

    with pytest.raises(InvalidDataError, match="no features for one image and 8 features for"):
        extracted(third, batch_size=batch_size)


class CountingNothing(GridDetector):
    def forward(self, batch, sizes, *, layers=False):
        out = super().forward(batch, sizes, layers=False)
        return out if layers else out._replace(images=out.images[:-1])


def test_a_wrong_number_of_images_and_a_missing_map_are_refused():
    with pytest.raises(InvalidDataError, match="returned 0 images for 1"):
        extract(CountingNothing(), scenes(3))
    with pytest.raises(InvalidDataError, match="no map of the layer latent/embed"):
        extract(CountingNothing(), scenes(3), layers=True)


def test_rounding_of_logits_features_and_confidence_is_no_error():
    def rounded(found):
        return found._replace(
            logits=found.logits.bfloat16().float(),
            features=found.features.half().float(),
            confidence=found.confidence.half(),
        )

    floor = float(extracted(lambda f: f).outputs.detections.confidence.min())
    assert extracted(rounded, rules=BoxFilter(floor, 100, None)).failed_images == ()


def test_without_heads_logits_are_taken_as_they_come():
    class Headless(ChangedDetector):
        heads: Any = ()

    halved = Headless(change=lambda f: f._replace(logits=f.logits / 2))
    assert len(extract(halved, scenes(6)).outputs) > 0


def test_each_box_is_compared_with_its_own_head():
    first, second = GridNetwork(0).head, GridNetwork(1).head

    @dataclass(eq=False)
    class TwoHeads(GridDetector):
        swapped: bool = False

        @property
        def heads(self):
            heads = [Head(h.weight.detach(), h.bias.detach()) for h in (first, second)]
            return tuple(reversed(heads)) if self.swapped else tuple(heads)

        def _found(self, features, logits, size):
            with torch.no_grad():
                logits = torch.where(
                    torch.arange(16)[:, None] % 2 == 0, first(features), second(features)
                )
            found = super()._found(features, logits, size)
            return found._replace(head_index=found.source_index % 2)

    assert extract(TwoHeads(), scenes(6)).failed_images == ()
    with pytest.raises(InvalidDataError, match="does not reproduce its logits"):
        extract(TwoHeads(swapped=True), scenes(6))


class Choosy(GridNetwork):
    """Fails on pictures whose first pixel is dark."""

    kind: type[BaseException] = RuntimeError

    def forward(self, batch):
        if (batch[:, 0, 0, 0] < 0.3).any():
            raise self.kind("one picture\nis too dark")
        return super().forward(batch)


class Hungry(Choosy):
    kind = MemoryError


class HungryGpu(Choosy):
    kind = torch.OutOfMemoryError


@pytest.mark.parametrize("batch_size", [1, 5])
def test_an_image_that_the_network_fails_on_is_listed_and_the_others_are_kept(batch_size):
    dataset, settings = scenes(12), Settings(batch_size=batch_size)
    dark = [i for k, i in enumerate(dataset.image_ids) if dataset.load(k)[0, 0, 0] < 0.3 * 255]
    assert 0 < len(dark) < 12
    found = extract(GridDetector(Choosy()), dataset, settings=settings)
    assert [image.image_id for image in found.failed_images] == dark
    assert {image.reason for image in found.failed_images} == {
        "the network failed on it: RuntimeError: one picture is too dark"
    }
    assert found.passes.images == 12 - len(dark)
    sound = extract(GridDetector(), dataset).outputs.detections
    kept = [k for k, name in enumerate(sound.image_ids) if name not in dark]
    assert found.outputs.detections.image_ids.tolist() == [sound.image_ids[k] for k in kept]
    rows = [k for k, image in enumerate(sound.image_index) if image in kept]
    torch.testing.assert_close(
        torch.tensor(found.outputs.detections.logits), torch.tensor(sound.logits[rows])
    )


@pytest.mark.parametrize("network", [Hungry, HungryGpu])
def test_a_lack_of_memory_is_no_fault_of_an_image(network: type[nn.Module]):
    with pytest.raises((MemoryError, torch.OutOfMemoryError), match="too dark"):
        extract(GridDetector(network()), scenes(12))


def test_a_wrong_adapter_ends_a_run_in_several_processes_with_the_same_sentence():
    detector = replace(GridDetector(), class_names=("red", "green"))
    with pytest.raises(InvalidDataError, match="for its 2 classes; give one column per class"):
        extract(detector, scenes(70), settings=Settings(device="cpu,cpu"))
