import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.models.networks import ResNet20, seeded
from torch import nn

from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError
from incognita.models.classifier import Classifier
from incognita.models.load import load_model, load_weights, read_weights


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "parts.py").write_text(
        textwrap.dedent(
            """
            from torch import nn

            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.conv, self.out = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

                def forward(self, x):
                    return self.out(self.conv(x).relu().mean(dim=(2, 3)))
            """
        )
    )
    (tmp_path / "model.py").write_text(
        textwrap.dedent(
            """
            import torch
            from torch import nn
            from incognita.models.classifier import wrap_classifier

            def to_gray(image):
                return torch.as_tensor(image).permute(2, 0, 1) / 255

            class Own(nn.Linear):
                pass

            def build():
                from parts import Net
                torch.manual_seed(0)
                return Net()

            def own():
                return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), Own(3, 2))

            def adapter():
                return wrap_classifier(build(), preprocess=to_gray, class_names=("cat", "dog"))

            def raising():
                raise KeyError("no such\\nthing")

            def needing(n_classes):
                return nn.Linear(3, n_classes)

            def refusing():
                return wrap_classifier(build(), class_names=("cat",))

            def small():
                return nn.Sequential(nn.Dropout(), nn.Flatten(), nn.Linear(192, 2))

            def number():
                return 3
            """
        )
    )
    return tmp_path


def test_a_function_of_a_file_gives_a_network(folder):
    classifier = load_model(f"{folder}/model.py:build")
    assert isinstance(classifier, Classifier)
    assert (classifier.name, classifier.head_name) == ("build", "out")


def test_a_function_of_a_file_gives_a_classifier(folder):
    classifier = load_model(f"{folder}/model.py:adapter")
    assert classifier.class_names == ("cat", "dog")
    assert classifier.preprocessing.startswith("to_gray#")


def test_importing_a_file_leaves_the_search_path_alone(folder):
    before = list(sys.path)
    load_model(f"{folder}/model.py:build")
    assert sys.path == before
    assert "model" not in sys.modules


def test_options_reach_the_network(folder):
    classifier = load_model(f"{folder}/model.py:build", class_names=["cat", "dog"], layers=["conv"])
    assert (classifier.class_names, classifier.layers) == (("cat", "dog"), ("conv",))


def test_options_of_a_finished_classifier_are_refused(folder):
    with pytest.raises(InvalidDataError, match="so layers cannot be changed"):
        load_model(f"{folder}/model.py:adapter", layers=["conv"])


def test_a_finished_classifier_keeps_its_names_and_knows_what_it_takes(folder):
    classifier = load_model(
        f"{folder}/model.py:adapter", class_names=["a", "b"], example=torch.rand(2, 5)
    )
    assert classifier.class_names == ("cat", "dog")


def test_a_network_for_pictures_of_an_unusual_size_gets_an_example(folder):
    spec = f"{folder}/model.py:small"
    classifier = load_model(spec, class_names=["cat", "dog"], example=torch.rand(2, 3, 8, 8))
    assert classifier.class_names == ("cat", "dog")
    assert classifier.head.weight.shape == (2, 192)
    with pytest.raises(InvalidDataError, match=r"accept the example batch of shape \[2, 3, 9, 9"):
        load_model(spec, example=torch.rand(2, 3, 9, 9))


def test_a_loaded_network_is_in_evaluation_mode(folder):
    for spec in (f"{folder}/model.py:build", f"{folder}/model.py:adapter", "digits:classifier"):
        assert not any(each.training for each in load_model(spec).module.modules())


def test_a_function_that_fails_is_named_with_its_error(folder):
    path = rf"of {folder}/model\.py failed with"
    with pytest.raises(InvalidDataError, match=rf"raising\(\) {path} KeyError: 'no such") as caught:
        load_model(f"{folder}/model.py:raising")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(InvalidDataError, match=rf"needing\(\) {path} TypeError: .*'n_classes'; it"):
        load_model(f"{folder}/model.py:needing")
    with pytest.raises(InvalidDataError, match=r"^Expected one class name per logit, got 1"):
        load_model(f"{folder}/model.py:refusing")


def test_networks_of_a_file_reach_another_process(folder):
    classifiers = [load_model(f"{folder}/model.py:{name}") for name in ("build", "own", "adapter")]
    paths = [folder / f"{k}.pickle" for k in range(3)]
    for path, classifier in zip(paths, classifiers, strict=True):
        path.write_bytes(pickle.dumps(classifier))
    code = (
        "import pickle, sys, torch\n"
        "for path in sys.argv[1:]:\n"
        "    c = pickle.load(open(path, 'rb'))\n"
        "    print(c.weights_hash, c.forward(torch.ones(1, 3, 32, 32)).logits.tolist())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=True
    )
    for classifier, line in zip(classifiers, run.stdout.splitlines(), strict=True):
        logits = classifier.forward(torch.ones(1, 3, 32, 32)).logits.tolist()
        assert line == f"{classifier.weights_hash} {logits}"


def test_what_cannot_be_found_is_said_in_a_sentence(folder):
    with pytest.raises(MissingDataError, match=r"There is no file at .*absent.py; check the path"):
        load_model(f"{folder}/absent.py:build")
    with pytest.raises(UnknownNameError, match=r"function of model.py is called 'buld'. Did you"):
        load_model(f"{folder}/model.py:buld")
    with pytest.raises(UnknownNameError, match=r"Did you mean terra:classifier\?"):
        load_model("terra:clasifier")
    with pytest.raises(UnknownNameError, match="No model is called 'resnet18'"):
        load_model("resnet18")


def test_what_is_no_model_is_said_in_a_sentence(folder):
    with pytest.raises(InvalidDataError, match=r"Expected number\(\) to return a .*, got int"):
        load_model(f"{folder}/model.py:number")


def test_a_file_that_fails_is_named(tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(InvalidDataError, match=r"broken.py could not be imported: ZeroDivision"):
        load_model(f"{tmp_path}/broken.py:build")


@pytest.mark.parametrize("prefix", ["", "module.", "module._orig_mod."])
@pytest.mark.parametrize("ending", ["safetensors", "pt", "pth"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_weights_are_loaded_from_every_kind_of_file(tmp_path, prefix, ending, wrapped):
    source = seeded(ResNet20, n_blocks=1)
    tensors = {f"{prefix}{name}": t.contiguous() for name, t in source.state_dict().items()}
    path = tmp_path / f"weights.{ending}"
    if ending == "safetensors":
        save_file(tensors, path)
    else:
        torch.save({"state_dict": tensors, "epoch": 3} if wrapped else tensors, path)
    network = ResNet20(n_blocks=1)
    load_weights(network, path)
    for mine, theirs in zip(network.parameters(), source.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_half_weights_become_floats(tmp_path):
    source = seeded(ResNet20, n_blocks=1)
    counters = "num_batches_tracked"
    tensors = {
        name: t.half() for name, t in source.state_dict().items() if not name.endswith(counters)
    }
    save_file(tensors, tmp_path / "half.safetensors")
    network = ResNet20(n_blocks=1)
    load_weights(network, tmp_path / "half.safetensors")
    assert network.linear.weight.dtype == torch.float32
    assert torch.equal(network.linear.weight, source.linear.weight.half().float())


def test_weights_that_do_not_fit_are_named(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({"weight": torch.zeros(2, 3), "extra": torch.zeros(1)}, path)
    with pytest.raises(
        InvalidDataError, match=r"1 missing \(first bias\), 1 unexpected \(first extra\)"
    ):
        load_weights(nn.Linear(3, 2), path)
    save_file({"weight": torch.zeros(4, 3), "bias": torch.zeros(2)}, path)
    with pytest.raises(InvalidDataError, match=r"weight has shape \[4, 3\] .* but \[2, 3\]"):
        load_weights(nn.Linear(3, 2), path)


def test_files_that_are_no_weights_are_refused(tmp_path):
    with pytest.raises(MissingDataError, match="no weights file at"):
        read_weights(tmp_path / "absent.pt")
    torch.save(nn.Linear(2, 2), tmp_path / "whole.pt")
    with pytest.raises(InvalidDataError) as caught:
        read_weights(tmp_path / "whole.pt")
    assert str(caught.value) == (
        f"{tmp_path / 'whole.pt'} could not be read as plain weights (it holds a "
        f"torch.nn.modules.linear.Linear); save the network's state_dict() or a safetensors file, "
        f"because pickled objects are not loaded."
    )
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InvalidDataError, match="holds a list, not named tensors"):
        read_weights(tmp_path / "list.pt")
    (tmp_path / "noise.pt").write_bytes(b"noise")
    with pytest.raises(InvalidDataError, match="could not be read as plain weights"):
        read_weights(tmp_path / "noise.pt")
    (tmp_path / "noise.safetensors").write_bytes(b"noise")
    with pytest.raises(InvalidDataError, match="is not a safetensors file"):
        read_weights(tmp_path / "noise.safetensors")
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    with pytest.raises(InvalidDataError, match="holds no named tensors"):
        read_weights(tmp_path / "empty.pt")


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"garbage " * 30, b"\x80\x02.", b"\x80\x02X\xff", b"PK\x03\x04" * 9, b"J\x00"]
    + [b"\x80\x02" + np.random.default_rng(seed).bytes(300) for seed in range(40)],
)
def test_garbage_is_refused_in_one_short_sentence(tmp_path, content):
    path = tmp_path / "junk.pt"
    path.write_bytes(content)
    with pytest.raises(InvalidDataError) as caught:
        read_weights(path)
    sentence = str(caught.value).removeprefix(str(path))
    assert sentence.startswith(" could not be read as plain weights (")
    assert len(sentence) < 330
    assert "\n" not in sentence
    assert "\x1b" not in sentence


def test_weights_go_into_a_network_of_a_file(folder):
    network = load_model(f"{folder}/model.py:build").module
    tensors = {name: torch.ones_like(t) for name, t in network.state_dict().items()}
    save_file(tensors, folder / "ones.safetensors")
    for function in ("build", "adapter"):
        classifier = load_model(
            f"{folder}/model.py:{function}", weights=folder / "ones.safetensors"
        )
        assert classifier.head.weight.unique().tolist() == [1.0]


@pytest.mark.data
def test_outputs_of_a_real_network_equal_those_on_disk(data_dir):
    from PIL import Image

    from incognita.models.classifier import wrap_classifier
    from incognita.models.preprocessing import Preprocessing

    network = ResNet20()
    load_weights(network, data_dir / "weights" / "resnet20-12fca82f.th")
    normalized = Preprocessing(32, 32, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    classifier = wrap_classifier(network, preprocess=normalized)
    sprite = Image.open(data_dir / "classification" / "cifar10" / "test.webp").convert("RGB")
    pixels = np.asarray(sprite.crop((0, 0, 3200, 64)))
    images = pixels.reshape(2, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3)
    stored = np.load(data_dir / "classification" / "resnet20_cifar10_outputs.npz")
    with torch.no_grad():
        got = classifier.forward(torch.stack([classifier.preprocess(each) for each in images]))
    for name, tensor in (("logits", got.logits), ("features", got.features)):
        expected = torch.from_numpy(stored[f"cifar10_test/{name}"][:200]).float()
        torch.testing.assert_close(tensor, expected, rtol=1e-3, atol=1e-2)
    assert np.array_equal(classifier.head.weight.numpy(), stored["fc/weight"])
    assert classifier.layers == ("layer1.input", "layer1", "layer2", "layer3")
