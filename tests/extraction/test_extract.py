"""The one pass: what it records, how often it runs the network, and what it does with faults."""

import numpy as np
import pytest
import torch
from tests.extraction.tiny import FailingImages, TinyClassifier, batch_of, images

from incognita.errors import InvalidDataError, UnknownNameError
from incognita.extraction.extra_outputs import (
    AdaScaleStep,
    GramRows,
    InputStep,
    LogitsWithoutTopDirection,
    MahalanobisStep,
    Numerators,
)
from incognita.extraction.extract import PassCount, Settings, extract
from incognita.extraction.settings import OUTPUTS
from incognita.extraction.store import MemoryShards, ShardGroup, join
from incognita.models.classifier import wrap_classifier

ODIN = [InputStep(e, t) for e in (0.001, 0.002) for t in (1.0, 1000.0)]


def mahalanobis(epsilon=0.002, layer="stage1", channels=8):
    rng = torch.Generator().manual_seed(3)
    root = torch.randn(channels, channels, generator=rng)
    return MahalanobisStep(
        layer, torch.randn(5, channels, generator=rng), root @ root.T + torch.eye(channels), epsilon
    )


def counted(classifier):
    """Return a list that is appended to for every batch that goes through the network."""
    seen = []
    classifier.module.register_forward_hook(lambda _m, inputs, _o: seen.append(len(inputs[0])))
    return seen


def test_outputs_are_those_of_the_network():
    classifier, dataset = TinyClassifier(), images(300)
    got = extract(classifier, dataset, layers=True).outputs
    with torch.no_grad():
        expected = classifier.forward(batch_of(classifier, dataset))
    assert got.image_ids == dataset.image_ids
    assert got.labels.tolist() == dataset.labels.tolist()
    torch.testing.assert_close(got.logits, expected.logits)
    torch.testing.assert_close(got.features, expected.features)
    torch.testing.assert_close(got.head(got.features), got.logits)
    assert list(got.layers) == ["stem", "stage1", "stage2"]
    for name, column in got.layers.items():
        torch.testing.assert_close(column, expected.maps[name].mean(dim=(2, 3)))


@pytest.mark.parametrize(
    ("extra_outputs", "forward", "backward"),
    [
        ([], 1, 0),
        ([GramRows()], 1, 0),
        ([GramRows(), GramRows((1, 2))], 1, 0),
        (ODIN, 1 + 4, 2),
        ([*ODIN, ODIN[0]], 1 + 4, 2),
        ([InputStep(0.0, 1.0), InputStep(0.0, 1000.0)], 1, 0),
        ([InputStep(0.0, 1.0), InputStep(0.001, 1.0)], 2, 1),
        ([AdaScaleStep(), AdaScaleStep(share=0.1)], 1 + 2, 1),
        ([LogitsWithoutTopDirection()], 1 + 2, 0),
        ([mahalanobis(0.001), mahalanobis(0.002), mahalanobis(0.001, "stem", 6)], 1 + 3, 2),
        (
            [GramRows(), *ODIN, AdaScaleStep(), LogitsWithoutTopDirection(), mahalanobis()],
            1 + 4 + 1 + 2 + 1,
            4,
        ),
    ],
)
def test_no_image_goes_through_the_network_more_often_than_needed(extra_outputs, forward, backward):
    classifier, dataset = TinyClassifier(), images(70)
    seen = counted(classifier)
    extracted = extract(
        classifier,
        dataset,
        layers=True,
        extra_outputs=extra_outputs,
        settings=Settings(batch_size=32),
    )
    assert extracted.passes == PassCount(70, 70 * forward, 70 * backward)
    assert sum(seen) == 70 * forward
    for extra in extra_outputs:
        assert any(name.startswith(f"{extra.key}/") for name in extracted.outputs.extra_outputs)


def test_backward_passes_are_counted_as_they_happen():
    classifier, seen = TinyClassifier(), []
    classifier.module.stem.register_full_backward_hook(
        lambda _m, _i, gradients: seen.append(len(gradients[0]))
    )
    extracted = extract(
        classifier, images(70), extra_outputs=[*ODIN, AdaScaleStep(), mahalanobis()]
    )
    assert sum(seen) == extracted.passes.backward == 4 * 70


def test_the_batch_size_does_not_matter_beyond_rounding():
    classifier, dataset = TinyClassifier(), images(600)
    extra_outputs = [GramRows(), *ODIN, LogitsWithoutTopDirection(), mahalanobis()]
    few, many = (
        extract(
            classifier,
            dataset,
            layers=True,
            extra_outputs=extra_outputs,
            settings=Settings(batch_size=b),
        ).outputs
        for b in (19, 512)
    )
    torch.testing.assert_close(few.logits, many.logits)
    for name, column in few.extra_outputs.items():
        torch.testing.assert_close(column, many.extra_outputs[name], rtol=1e-4, atol=1e-4)


def test_the_classifier_of_the_caller_stays_as_it_is():
    classifier = TinyClassifier()
    classifier.module.train()
    before = {name: tensor.clone() for name, tensor in classifier.module.state_dict().items()}
    extract(classifier, images(9), extra_outputs=ODIN, settings=Settings(precision="bfloat16"))
    assert classifier.module.training
    assert all(weight.requires_grad for weight in classifier.module.parameters())
    for name, tensor in classifier.module.state_dict().items():
        assert tensor.dtype == torch.float32
        assert tensor.is_contiguous()
        assert torch.equal(tensor, before[name])


def test_a_wrapped_network_that_cannot_be_pickled_can_be_run():
    net = TinyClassifier().module
    plain = torch.nn.Sequential(
        net.stem, net.stage1, net.stage2, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), net.fc
    )
    wrapped = wrap_classifier(
        plain,
        preprocess=lambda image: torch.from_numpy(image).permute(2, 0, 1) / 255,
        layers=("1", "2"),
        example=torch.rand(2, 3, 12, 12),
    )
    dataset = images(40)
    outputs = extract(
        wrapped, dataset, layers=True, extra_outputs=[*ODIN, LogitsWithoutTopDirection()]
    ).outputs
    batch = torch.from_numpy(dataset.images).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        torch.testing.assert_close(outputs.logits, plain(batch))
        torch.testing.assert_close(outputs.layers["2"], plain[:3](batch).mean(dim=(2, 3)))
    assert wrapped.module is plain


def test_bfloat16_gives_float32_columns_near_those_of_float32():
    classifier, dataset = TinyClassifier(), images(64)
    extra_outputs = [InputStep(0.001), GramRows()]
    half = extract(
        classifier,
        dataset,
        layers=True,
        extra_outputs=extra_outputs,
        settings=Settings(precision="bfloat16"),
    ).outputs
    full = extract(classifier, dataset, layers=True, extra_outputs=extra_outputs).outputs
    assert half.logits.dtype == half.features.dtype == torch.float32
    torch.testing.assert_close(half.logits, full.logits, rtol=0.05, atol=0.05)
    assert not torch.equal(half.logits, full.logits)
    torch.testing.assert_close(half.head(half.features), half.logits)  # not rounded to eight bits
    for name, column in half.extra_outputs.items():
        assert column.dtype == torch.float32, name


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
def test_bfloat16_that_is_slower_on_this_cpu_is_warned_of_once(monkeypatch, device):
    seconds = {"float32": 0.1, "bfloat16": 0.35}
    monkeypatch.setattr(
        "incognita.extraction.extract._seconds_per_call", lambda _j, _i, name: seconds[name]
    )
    classifier, settings = TinyClassifier(), Settings(precision="bfloat16", device=device)
    with pytest.warns(UserWarning, match="tiny takes 3.5 times as long in bfloat16 as in float32"):
        first = extract(classifier, images(9), settings=settings)
    assert first.passes == PassCount(9, 9, 0)
    extract(classifier, images(9), settings=settings)
    seconds["bfloat16"] = 0.05
    extract(TinyClassifier(), images(9), settings=settings)


def test_the_precisions_are_timed_on_the_classifier_itself(monkeypatch):
    monkeypatch.setattr("incognita.extraction.extract._SHORTEST_CALL", 0.0)
    monkeypatch.setattr("incognita.extraction.extract._SLOWER", 0.0)
    classifier = TinyClassifier()
    seen = counted(classifier)
    with pytest.warns(UserWarning, match="times as long in bfloat16"):
        extract(classifier, images(40), settings=Settings(precision="bfloat16"))
    assert seen == [16] * 3 + [16] * 3 + [40]  # and the run itself


def test_columns_can_be_changed_and_differentiated():
    outputs = extract(TinyClassifier(), images(5)).outputs
    assert not outputs.logits.is_inference()
    outputs.features.clone().requires_grad_().sum().backward()


def faults():
    nan = np.zeros((12, 12, 3), np.uint8)
    return {
        0: OSError("truncated\nfile"),
        3: np.zeros((12, 12), np.uint8),
        40: np.zeros((12, 12, 3)),
        42: "text",
        69: nan,
    }


class NanOnBlack(TinyClassifier):
    def preprocess(self, image):
        return super().preprocess(image) + (0 if image.any() else float("nan"))


def test_failed_images_are_named_and_the_others_kept():
    classifier, dataset = NanOnBlack(), images(70)
    extra_outputs = [
        GramRows(),
        LogitsWithoutTopDirection(),
        InputStep(0.001),
        AdaScaleStep(),
        mahalanobis(),
    ]
    extracted = extract(
        classifier,
        FailingImages(dataset, faults()),
        layers=True,
        extra_outputs=extra_outputs,
        settings=Settings(batch_size=32),
    )
    reasons = {image.image_id: image.reason for image in extracted.failed_images}
    assert reasons == {
        "image-0": "OSError: truncated file",
        "image-3": "the image is uint8 of shape [12, 12], not uint8 [height, width, 3]",
        "image-40": "the image is float64 of shape [12, 12, 3], not uint8 [height, width, 3]",
        "image-42": "the image is a str, not an array",
        "image-69": "logits of the network is not finite",
    }
    kept = [k for k in range(70) if k not in faults()]
    assert extracted.outputs.image_ids == tuple(f"image-{k}" for k in kept)
    assert extracted.outputs.labels.tolist() == dataset.labels[kept].tolist()
    assert extracted.passes.images == 66  # the last one went through, in vain
    whole = extract(TinyClassifier(), dataset, layers=True, extra_outputs=extra_outputs).outputs
    torch.testing.assert_close(extracted.outputs.logits, whole.logits[kept])
    for name, column in extracted.outputs.extra_outputs.items():
        torch.testing.assert_close(column, whole.extra_outputs[name][kept], rtol=1e-4, atol=1e-4)


def test_tensors_of_several_shapes_stop_the_pass_and_name_the_preprocessing():
    dataset = FailingImages(images(9), {4: np.zeros((9, 12, 3), np.uint8)})
    with pytest.raises(
        InvalidDataError, match="The preprocessing returns different shapes"
    ) as found:
        extract(TinyClassifier(), dataset)
    assert "[3, 12, 12] for image-0 and [3, 9, 12] for image-4" in str(found.value)


def test_a_dataset_of_failing_images_gives_no_rows():
    dataset = FailingImages(images(3), dict.fromkeys(range(3), ValueError("no")))
    extracted = extract(TinyClassifier(), dataset, layers=True, extra_outputs=[GramRows()])
    assert len(extracted.outputs) == 0
    assert extracted.outputs.logits.shape == (0, 5)
    assert len(extracted.failed_images) == 3
    assert extracted.passes == PassCount(0, 0, 0)


class FailsOnBlack(TinyClassifier):
    def forward(self, batch, *, replace_map=None):
        black = self.preprocess(np.zeros((1, 1, 3)))
        if (batch == black).flatten(1).all(dim=1).any():
            raise RuntimeError("nothing to see")
        return super().forward(batch, replace_map=replace_map)


def test_an_image_that_the_network_fails_on_is_listed_and_its_neighbors_are_not():
    dataset = FailingImages(images(9), {4: np.zeros((12, 12, 3), np.uint8)})
    extra_outputs = [GramRows(), InputStep(0.001)]
    found = extract(FailsOnBlack(), dataset, layers=True, extra_outputs=extra_outputs)
    assert [(image.image_id, image.reason) for image in found.failed_images] == [
        ("image-4", "the network failed on it: RuntimeError: nothing to see")
    ]
    others = [k for k in range(9) if k != 4]
    sound = extract(TinyClassifier(), images(9)).outputs
    torch.testing.assert_close(found.outputs.logits, sound.logits[others])
    assert found.passes == PassCount(8, 16, 8)


def test_columns_that_only_some_shards_have_are_refused():
    shards = MemoryShards()
    shards.write(0, OUTPUTS, ShardGroup((0,), {"logits": torch.ones(1, 2)}))
    both = {"logits": torch.ones(1, 2), "features": torch.ones(1, 3)}
    shards.write(1, OUTPUTS, ShardGroup((1,), both))
    with pytest.raises(InvalidDataError, match="Some images have features and others do not"):
        join(shards, 2, [OUTPUTS])


def test_no_images_give_no_rows():
    extracted = extract(TinyClassifier(), images(0))
    assert len(extracted.outputs) == 0
    assert extracted.failed_images == ()


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_what_is_no_fault_of_an_image_is_not_swallowed(error):
    dataset = FailingImages(images(3), {1: error})
    with pytest.raises(type(error)):
        extract(TinyClassifier(), dataset)


def test_progress_counts_every_image_once():
    counts = []
    extract(
        TinyClassifier(),
        FailingImages(images(600), {5: ValueError("no")}),
        settings=Settings(batch_size=200),
        on_progress=counts.append,
    )
    assert counts == [200, 200, 112, 88]


def test_no_labels_are_no_labels():
    assert extract(TinyClassifier(), images(4, labels=False)).outputs.labels is None


def test_the_size_is_that_of_the_columns():
    extracted = extract(TinyClassifier(), images(10), layers=True)
    assert extracted.n_bytes == 4 * 10 * (5 + 7 + 6 + 8 + 7)
    assert extracted.seconds > 0


def test_what_the_network_does_not_have_is_refused():
    classifier, dataset = TinyClassifier(), images(4)
    with pytest.raises(InvalidDataError, match="Numerators needs numerators, but the network"):
        extract(classifier, dataset, extra_outputs=[Numerators()])
    with pytest.raises(InvalidDataError, match="InputStep needs numerators, but the network"):
        extract(classifier, dataset, extra_outputs=[InputStep(0.1, objective="numerator")])
    with pytest.raises(UnknownNameError, match="No layer of tiny is called 'stag1'"):
        extract(classifier, dataset, extra_outputs=[mahalanobis(layer="stag1")])
    classifier.layers = ("stem",)
    with pytest.raises(
        InvalidDataError,
        match="needs maps of at least 2 layers, but tiny records 1",
    ):
        extract(classifier, dataset, extra_outputs=[LogitsWithoutTopDirection()])
    classifier.layers = ()
    with pytest.raises(InvalidDataError, match="tiny records none"):
        extract(classifier, dataset, layers=True)
    with pytest.raises(InvalidDataError, match="Expected batch_size of at least 1, got 0"):
        Settings(batch_size=0)


def test_a_device_that_cannot_compute_is_refused():
    for name in ("meta", "hpu", "xla"):
        with pytest.raises(InvalidDataError, match=f"cannot be run on '{name}'. Choose a device"):
            Settings(device=name)
    with pytest.raises(InvalidDataError, match="No device is called 'gpu'"):
        Settings(device="gpu")
    assert Settings(device="cpu").device == "cpu"


@pytest.mark.parametrize(
    ("kind", "is_there"),
    [("mps", torch.backends.mps.is_available()), ("xpu", torch.xpu.is_available())],
)
def test_a_device_that_is_not_there_is_refused(kind, is_there):
    if is_there:
        pytest.skip(f"there is one of kind {kind}")
    with pytest.raises(InvalidDataError, match=f"torch cannot compute on device '{kind}'"):
        Settings(device=kind)
