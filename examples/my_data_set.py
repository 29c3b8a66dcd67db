"""My data set: folders of images, and a TOML file that states the role of each folder.

python examples/my_data_set.py writes shapes/, shapes.toml and my_data_set.html.
"""

from pathlib import Path

from PIL import Image

import incognita
from incognita.models.embedded.terra_classifier import load_terra_classifier

DEFINITION = """
name = "mine/shapes"
version = 1
title = "drawn shapes against others that resemble them"
classes = [
    "triangle", "square", "pentagon", "disc", "ring", "crescent", "plus", "tee", "corner",
    "four-star", "six-star", "gear",
]

[[set]]
name = "train"
role = "train"
kind = "folder"
path = "shapes/train"

[[set]]
name = "test"
role = "test"
kind = "folder"
path = "shapes/test"

[[set]]
name = "others"
role = "near"
kind = "folder"
path = "shapes/others"
one_class_per_folder = false
"""
Path("shapes.toml").write_text(DEFINITION)

# One folder per class for known images; unknown images need no classes. These come from Terra.
terra = incognita.load_benchmark("terra/standard", limit=60)
others = next(iter(terra.unknown["near"].values()))
for folder, images in {"train": terra.train, "test": terra.test, "others": others}.items():
    for index in range(len(images.image_ids)):
        name = "" if images.labels is None else terra.classes[images.labels[index]]
        path = Path("shapes", folder, name, f"{index}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images.load(index)).save(path)

# From a shell: incognita run shapes.toml --model my_net.py:build
report = incognita.evaluate(load_terra_classifier(), "shapes.toml", "msp, energy, knn")
print(report)
report.save_html("my_data_set.html")
