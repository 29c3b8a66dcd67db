"""Prepares FACETS the other way round: a classifier of ImageNet meets scenes of Places.

    python studies/facets_reversed/prepare.py DATA OUT [--distance 0.40]

DATA has `classification/imagenet_samples` (250 images, a wnid in each name) and
`classification/places` (2,000 images of MiniPlaces with their scene). A scene is accepted if its
distance in WordNet to some class of ImageNet is at most T, by first senses, or if it has its name
(palace and volcano do, but are far by their first sense); else it is unknown.
"""

import argparse
import json
import zipfile
from pathlib import Path

from incognita.semantics import class_distance, load_synset_map, map_classes

SET = """
[[set]]
name = "{name}"
role = "{role}"
kind = "imglist"
list = "{name}.txt"
source_classes = "{name}.classes.txt"
root = "images"
"""


def main() -> None:
    """Unpack the images, choose the scenes, and write lists and a benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--distance", type=float, default=0.4)
    asked = parser.parse_args()
    imagenet = load_synset_map("imagenet1k")
    samples, scenes = unpack(asked.data / "classification", asked.out / "images")
    wnids = [row.wnid for row in imagenet.classes]
    known = [(f"known/{name}", wnids.index(name[:9]), name[10:-4]) for name in samples]
    accepted, unknown = [], []
    nearest = near_classes(sorted(set(scenes.values())), imagenet)
    for name, scene in sorted(scenes.items()):
        is_near = nearest[scene][1] <= asked.distance or scene in imagenet.names
        (accepted if is_near else unknown).append((f"scenes/{name}", -1, scene))
    sets = {"test": known, "accepted": accepted, "unknown": unknown}
    names = json.dumps(imagenet.names)
    text = (
        f'name = "studies/facets-reversed-{asked.distance:.2f}"\nversion = 1\n'
        f'title = "FACETS reversed: ImageNet samples against MiniPlaces; no number of the paper"\n'
        f"classes = {names}\n"
    )
    for name, rows in sets.items():
        text += SET.format(name=name, role=name)
        (asked.out / f"{name}.txt").write_text("".join(f"{p} {k}\n" for p, k, _ in rows))
        (asked.out / f"{name}.classes.txt").write_text("".join(f"{c}\n" for *_, c in rows))
    (asked.out / "benchmark.toml").write_text(text)
    for scene, (name, distance) in sorted(nearest.items(), key=lambda item: item[1][1]):
        if distance <= asked.distance:
            print(f"{scene:30} {name:30} {distance:.3f}")
    print({name: len(rows) for name, rows in sets.items()})


def unpack(source: Path, out: Path) -> tuple[list[str], dict[str, str]]:
    """Unpack both sets; return the samples, and the scene of each image of MiniPlaces."""
    with zipfile.ZipFile(source / "imagenet_samples" / "in250_s256.zip") as archive:
        archive.extractall(out / "known")
        samples = sorted(archive.namelist())
    with zipfile.ZipFile(source / "places" / "miniplaces_val2000.zip") as archive:
        archive.extractall(out / "scenes")
    facts = json.loads((source / "places" / "miniplaces_val2000.json").read_text())
    names = next(value for key, value in facts.items() if key != "images")
    plain = [str(name).removeprefix("/")[2:] for name in names]
    return samples, {image: plain[k] for image, k in facts["images"].items()}


def near_classes(scenes: list[str], imagenet: object) -> dict[str, tuple[str, float]]:
    """Return the nearest class of ImageNet and its distance, for each scene."""
    distances = class_distance(map_classes(scenes).synsets, imagenet.synsets)
    best = distances.argmin(axis=1)
    return {
        scene: (imagenet.names[k], float(distances[row, k]))
        for row, (scene, k) in enumerate(zip(scenes, best.tolist(), strict=True))
    }


if __name__ == "__main__":
    main()
