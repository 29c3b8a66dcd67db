"""Files as COCO, OpenImages and VOS publish them, a few pixels in size."""

from pathlib import Path

from tests.benchmarks.image_trees import write_image
from tests.formats.annotation_cases import document, write

from incognita.benchmarks.splits.rules import load_rules

OPENIMAGES_HEADER = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,"
    "IsDepiction,IsInside\n"
)


def category_names(rules: str, *more: str) -> list[str]:
    """List every category that rules name."""
    found = load_rules(rules).rules
    listed = (*found.known, *found.remove, *found.near, *more)
    return [name for name in dict.fromkeys(listed) if name not in found.absent]


def write_coco(
    folder: Path, held, rules: str = "fmiyc-voc-coco", *, name: str = "val.json"
) -> Path:
    """Write an annotation file where COCO keeps them."""
    content = document(held, category_names(rules, "kite"))
    return write(folder / "coco" / "annotations" / name, content)


def write_complete_coco(folder: Path) -> tuple[Path, Path, Path]:
    """Write a base, a second file and lists of ids that give the counts of the paper."""
    base = {k: ["zebra"] if k < 600 else ["kite"] for k in range(930)}
    near, far = list(range(1000, 1574)), list(range(2000, 2608))
    train = {k: ["bear"] for k in near} | {k: ["kite"] for k in far} | {9999: ["kite"]}
    ids = f"version = 1\n[fmiyc-voc-coco.candidates]\nnear = {near}\nfar = {far}\n"
    return (
        write_coco(folder, base),
        write_coco(folder, train, name="train.json"),
        write(folder / "ids.toml", ids),
    )


def write_openimages(folder: Path, lines: str, rules: str = "fmiyc-voc-openimages") -> Path:
    """Write boxes (`image label`, one in each line) and class names as OpenImages has them."""
    names = dict.fromkeys([*category_names(rules), "Kite", "Jaguar", "Fox"])
    labels = {name: f"/m/{k}" for k, name in enumerate(names)}
    rows = [line.split(" ", 1) for line in lines.splitlines()]
    boxes = "".join(f"{i},xclick,{labels[n]},1,0.1,0.5,0.2,0.4,0,0,0,0,0\n" for i, n in rows)
    write(folder / "train-annotations-bbox.csv", OPENIMAGES_HEADER + boxes)
    listed = "".join(f"{label},{name}\n" for name, label in labels.items())
    write(folder / "class-descriptions-boxable.csv", listed)
    return folder


def write_vos_images(folder: Path, *ids: str) -> None:
    """Write images where VOS's archive has them."""
    for image_id in ids:
        write_image(folder / "ood_classes_rm_overlap" / "images" / f"{image_id}.jpg", size=(20, 10))
