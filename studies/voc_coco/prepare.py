"""Lays out real VOC and COCO images as studies/voc_coco/benchmark.toml expects them.

python studies/voc_coco/prepare.py --data ../shared/data --out voc-coco-images
"""

import argparse
import gzip
import json
import zipfile
from pathlib import Path
from typing import Any


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder with detection/")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    prepare(asked.data / "detection", asked.out)


def prepare(source: Path, out: Path) -> None:
    """Extract the images and write one annotation file next to each image folder."""
    voc, coco = source / "voc2007", source / "coco"
    unpack(voc / "voc2007_fit290_s352.zip", out / "voc" / "fit")
    write(read(voc / "voc2007_fit290_s352.json.gz"), out / "voc" / "fit.json")
    unpack(voc / "voc2007_test_subset.zip", out / "voc" / "test")
    test = only_images_in(out / "voc" / "test", read(voc / "voc2007_test_all.json.gz"))
    write(test, out / "voc" / "test.json")
    unpack(coco / "val2017_subset.zip", out / "coco" / "images")
    write(read(coco / "instances_val2017_subset.json.gz"), out / "coco" / "all.json")


def unpack(archive: Path, folder: Path) -> None:
    """Extract the images of an archive into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            if name.endswith(".jpg"):
                (folder / Path(name).name).write_bytes(packed.read(name))


def read(path: Path) -> dict[str, Any]:
    """Load a compressed annotation file."""
    with gzip.open(path) as file:
        content: dict[str, Any] = json.load(file)
    return content


def write(content: dict[str, Any], path: Path) -> None:
    """Write an annotation file."""
    path.write_text(json.dumps(content))


def only_images_in(folder: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Keep the images that are there: the file annotates all 4,952 test images of VOC2007."""
    images = [image for image in content["images"] if (folder / image["file_name"]).is_file()]
    ids = {image["id"] for image in images}
    kept = [box for box in content["annotations"] if box["image_id"] in ids]
    return {"images": images, "annotations": kept, "categories": content["categories"]}


if __name__ == "__main__":
    main()
