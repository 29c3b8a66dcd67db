"""One door for the detectors of all libraries."""

import pickle
import subprocess
import sys
import textwrap

import pytest
import torch
from safetensors.torch import save_file
from tests.models.torchvision_networks import drawn, images
from torch import nn
from torchvision import models
from torchvision.models.detection import ssdlite320_mobilenet_v3_large

from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError
from incognita.models.detector import BoxFilter, Detector, is_detector_network, wrap_detector
from incognita.models.from_torchvision import classifiers as from_torchvision
from incognita.models.from_torchvision import detectors as torchvision_loading
from incognita.models.load import load_classifier, load_model

LITE = "ssdlite320_mobilenet_v3_large"


def call(detector, batch):
    with torch.no_grad():
        return detector.forward(batch, [tuple(batch.shape[2:])] * len(batch)).images


@pytest.fixture(scope="module")
def lite():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ssdlite320_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=4
        ).eval()


# wrap_detector


@pytest.mark.parametrize("family", ["faster", "mask", "retinanet", "fcos", "ssd"])
def test_a_network_of_torchvision_is_wrapped_with_rules_of_ones_own(family):
    network = drawn(family)
    detector = wrap_detector(
        network, score_threshold=0.2, max_per_image=9, nms_iou=0.4, name="mine"
    )
    assert isinstance(detector, Detector)
    assert detector.rules == BoxFilter(0.2, 9, 0.4)
    assert (detector.name, detector.module) == ("mine", network)
    assert wrap_detector(network).rules == BoxFilter(0.05, 30, 0.5)


def test_what_a_library_takes_reaches_its_wrapper():
    def to_tensor(image):
        return torch.zeros(3, 4, 4)

    detector = wrap_detector(
        drawn("faster"),
        class_names=("cat", "dog", "cow", "hen"),
        preprocess=to_tensor,
        latent="backbone.fpn",
        shortcuts=["backbone.body.layer1"],
    )
    assert detector.class_names == ("cat", "dog", "cow", "hen")
    assert "to_tensor#" in detector.preprocessing
    assert detector.layers == ("latent/backbone.fpn", "shortcut/backbone.body.layer1")


def test_what_a_library_does_not_take_is_refused():
    with pytest.raises(InvalidDataError) as caught:
        wrap_detector(drawn("faster"), prompts=["a cat"])
    sentence = "Detectors of torchvision do not take prompts=; leave it out."
    assert str(caught.value) == sentence


def test_a_subclass_of_a_users_own_is_known_by_what_it_inherits():
    class Mine(type(drawn("faster"))):
        pass

    network = drawn("faster")
    network.__class__ = Mine
    assert is_detector_network(network)
    assert is_detector_network(nn.DataParallel(network))
    assert wrap_detector(network).name == "Mine"
    assert not is_detector_network(models.resnet18(num_classes=2))
    assert not is_detector_network(network.rpn)


@pytest.mark.parametrize(
    ("library", "kind", "home"),
    [
        (
            "transformers",
            "DetrForObjectDetection",
            "from_transformers.detectors:wrap_transformers_",
        ),
        ("ultralytics", "DetectionModel", "from_ultralytics:wrap_ultralytics_"),
        ("ultralytics", "YOLO", "from_ultralytics:wrap_ultralytics_"),
    ],
)
def test_other_libraries_are_told_by_the_name_of_a_class(monkeypatch, library, kind, home):
    """Without importing them: a class of that name stands for theirs."""
    asked = []

    def resolve_stand_in(place):
        return lambda module, **options: asked.append((place, options)) or finished

    finished = wrap_detector(drawn("faster"))
    monkeypatch.setattr("incognita.models.libraries.resolve_name", resolve_stand_in)
    network = type(kind, (nn.Module,), {"__module__": f"{library}.models.some"})()
    assert is_detector_network(network)
    detector = wrap_detector(network, class_names=["cat"], latent="encoder", score_threshold=0.3)
    expected = {"class_names": ["cat"], "name": None, "latent": "encoder", "shortcuts": None}
    assert asked == [(f"incognita.models.{home}detector", {"rules": None, **expected})]
    assert detector.rules.score_threshold == 0.3


def test_a_finished_detector_gets_other_rules_and_nothing_else():
    finished = wrap_detector(drawn("faster"))
    assert wrap_detector(finished, max_per_image=2).rules == BoxFilter(0.05, 2, 0.5)
    with pytest.raises(InvalidDataError, match="already wrapped, so class_names cannot be changed"):
        wrap_detector(finished, class_names=["cat"])


@pytest.mark.parametrize("thing", [nn.Linear(2, 2), 3, None])
def test_anything_else_is_told_what_there_is(outside_tests, thing):
    with pytest.raises(InvalidDataError) as caught:
        wrap_detector(thing)
    assert str(caught.value) == (
        f"Expected a detector, got {type(thing).__name__}. Supported detectors are those of "
        "torchvision (Faster R-CNN, RetinaNet, FCOS, SSD), transformers (DETR, Deformable DETR, "
        "RT-DETR, OWL-ViT, OWLv2), ultralytics (YOLO); for any other network implement "
        "incognita.models.detector.Detector."
    )


def test_looking_for_a_library_imports_none():
    code = (
        "import sys, torch\n"
        "from incognita.models.detector import is_detector_network\n"
        "is_detector_network(torch.nn.Linear(2, 2))\n"
        "print(*{'torchvision', 'transformers', 'ultralytics'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


# load_model


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.py").write_text(
        textwrap.dedent(
            """
            import torch
            from collections import OrderedDict
            from torch import nn
            from torchvision.models.detection import FasterRCNN
            from torchvision.models.detection.anchor_utils import AnchorGenerator
            from torchvision.ops import MultiScaleRoIAlign
            from incognita.models.detector import wrap_detector

            class Backbone(nn.Module):
                out_channels = 8

                def __init__(self):
                    super().__init__()
                    self.conv = nn.Conv2d(3, 8, 8, 8)

                def forward(self, x):
                    return self.conv(x)

            def build():
                torch.manual_seed(0)
                return FasterRCNN(
                    Backbone(), 3, min_size=32, max_size=64, box_score_thresh=0.1,
                    rpn_anchor_generator=AnchorGenerator(((16,),), ((1.0,),)),
                    box_roi_pool=MultiScaleRoIAlign(["0"], 2, 2),
                    rpn_post_nms_top_n_test=9,
                )

            def adapter():
                return wrap_detector(build(), class_names=("cat", "dog"), score_threshold=0.01)
            """
        )
    )
    return tmp_path


def test_a_function_of_a_file_gives_a_detector(folder):
    detector = load_model(f"{folder}/model.py:build", class_names=["cat", "dog"])
    assert isinstance(detector, Detector)
    assert (detector.name, detector.class_names) == ("build", ("cat", "dog"))
    assert detector.rules.score_threshold == 0.1
    assert not any(each.training for each in detector.module.modules())
    finished = load_model(f"{folder}/model.py:adapter")
    assert (finished.class_names, finished.rules.score_threshold) == (("cat", "dog"), 0.01)


def test_layers_of_a_detector_are_given_with_that_of_lard_first(folder):
    layers = ["backbone.conv", "backbone"]
    detector = load_model(f"{folder}/model.py:build", layers=layers)
    assert detector.layers == ("latent/backbone.conv", "shortcut/backbone")
    with pytest.raises(InvalidDataError, match="a wrapped detector, so layers cannot be changed"):
        load_model(f"{folder}/model.py:adapter", layers=layers)


def test_detectors_of_a_file_reach_another_process(folder):
    detectors = [load_model(f"{folder}/model.py:{name}") for name in ("build", "adapter")]
    paths = [folder / f"{k}.pickle" for k in range(2)]
    for path, detector in zip(paths, detectors, strict=True):
        path.write_bytes(pickle.dumps(detector))
    code = (
        "import pickle, sys, torch\n"
        "for path in sys.argv[1:]:\n"
        "    d = pickle.load(open(path, 'rb'))\n"
        "    with torch.no_grad():\n"
        "        found = d.forward(torch.ones(1, 3, 32, 32), [(32, 32)]).images[0]\n"
        "    print(d.weights_hash, found.logits.tolist())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=True
    )
    for detector, line in zip(detectors, run.stdout.splitlines(), strict=True):
        logits = call(detector, torch.ones(1, 3, 32, 32))[0].logits.tolist()
        assert logits
        assert line == f"{detector.weights_hash} {logits}"


def test_weights_go_into_a_detector_of_a_file(folder):
    network = load_model(f"{folder}/model.py:build").module
    tensors = {name: torch.ones_like(each) for name, each in network.state_dict().items()}
    save_file(tensors, folder / "ones.safetensors")
    for name in ("build", "adapter"):
        detector = load_model(f"{folder}/model.py:{name}", weights=folder / "ones.safetensors")
        assert detector.heads[0].weight.unique().tolist() == [1.0]


def test_a_detector_is_refused_where_a_classifier_is_needed(folder):
    with pytest.raises(
        InvalidDataError, match=r"Expected a classifier, but .*:build is a detector"
    ):
        load_classifier(f"{folder}/model.py:build")


def test_a_file_decides_the_number_of_classes_of_a_named_detector(lite, tmp_path):
    torch.save(lite.state_dict(), tmp_path / "w.pth")
    detector = load_model(f"torchvision:{LITE}", weights=tmp_path / "w.pth")
    assert (detector.name, len(detector.class_names)) == (f"torchvision:{LITE}", 3)
    batch = images(1)
    with torch.no_grad():
        (expected,) = lite(list(batch))
    (found,) = call(detector, batch)
    assert len(found.xyxy) > 10
    assert torch.equal(found.xyxy, expected["boxes"])
    assert torch.equal(found.class_ids + 1, expected["labels"])


def test_cached_weights_of_a_named_detector_bring_its_class_names(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(MissingDataError, match="nothing is downloaded; pass a file with --weights"):
        load_model(f"torchvision:{LITE}")
    network = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
    (tmp_path / "checkpoints").mkdir()
    url = models.get_model_weights(LITE).DEFAULT.url
    torch.save(network.state_dict(), tmp_path / "checkpoints" / url.rpartition("/")[2])
    detector = load_model(f"torchvision:{LITE}.COCO_V1")
    assert (len(detector.class_names), len(set(detector.class_names))) == (90, 90)
    assert detector.class_names[:2] == ("person", "bicycle")
    assert "N/A 12" in detector.class_names


def test_published_weights_without_an_epsilon_get_none(monkeypatch, tmp_path):
    """As torchvision's own builder does; weights of a user keep the usual one."""
    name = "fasterrcnn_resnet50_fpn"

    built = drawn("faster")
    built.norm = nn.BatchNorm2d(2)
    monkeypatch.setattr(torchvision_loading, "_network", lambda architecture, n: built)
    monkeypatch.setattr(torchvision_loading, "_n_labels", lambda *_: 5)
    torch.save(built.state_dict(), tmp_path / "w.pth")
    load_model(f"torchvision:{name}", weights=tmp_path / "w.pth")
    assert built.norm.eps == 1e-5
    monkeypatch.setattr(from_torchvision, "_cached", lambda *_: tmp_path / "w.pth")
    load_model(f"torchvision:{name}")
    assert built.norm.eps == 0.0


def test_names_in_older_files_are_understood(tmp_path):
    """Files from before torchvision 0.12 call a convolution of the proposals by another name."""
    network = drawn("faster")
    old = {
        name.replace("rpn.head.conv.0.0.", "rpn.head.conv."): each.clone()
        for name, each in network.state_dict().items()
    }
    assert "rpn.head.conv.weight" in old
    torch.save(old, tmp_path / "old.pth")
    again = drawn("faster")
    nn.init.zeros_(again.rpn.head.conv[0][0].weight)
    torchvision_loading._load(again, tmp_path / "old.pth")
    assert torch.equal(again.rpn.head.conv[0][0].weight, network.rpn.head.conv[0][0].weight)


def test_weights_that_do_not_fit_are_named(tmp_path):
    network = drawn("faster")
    state = dict(network.state_dict())
    state["more"] = state.pop("roi_heads.box_head.fc6.bias")
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(InvalidDataError, match=r"1 missing \(first roi_heads.box_head.fc6.bias"):
        torchvision_loading._load(network, tmp_path / "w.pth")
    state["roi_heads.box_head.fc6.bias"] = torch.zeros(3)
    del state["more"]
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(InvalidDataError, match=r"fc6.bias has shape \[3\] in .* but \[1024\] in"):
        torchvision_loading._load(network, tmp_path / "w.pth")


def test_a_typo_in_the_name_of_a_detector_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match=r"Did you mean fasterrcnn_resnet50_fpn\?"):
        load_model("torchvision:fasterrcn_resnet50_fpn")
    with pytest.raises(UnknownNameError, match=r"Did you mean COCO_V1\?"):
        load_model("torchvision:fasterrcnn_resnet50_fpn.COCO_V11")


def test_the_detector_of_terra_is_loaded_by_its_name():
    detector = load_model("terra:detector")
    assert isinstance(detector, Detector)
    assert (detector.name, len(detector.class_names)) == ("terra-detector", 12)
    batch = images(1, 160, 160)
    with torch.no_grad():
        (expected,) = detector.module(list(batch))
    (found,) = call(detector, batch)
    assert torch.equal(found.xyxy, expected["boxes"])
