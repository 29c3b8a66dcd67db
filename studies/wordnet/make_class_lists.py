"""Write the class names of `incognita.semantics.maps` from the lists of the data folder.

    python studies/wordnet/make_class_lists.py ../shared/data

Which sense of a name is meant is not decided here: it is recorded by hand in the TOML files beside.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from incognita.semantics import load_wordnet

OUT = Path(__file__).parents[2] / "src" / "incognita" / "semantics" / "maps"


def main() -> None:
    """Write one text file per data set into the package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with lists and classification")
    asked = parser.parse_args()
    for dataset, lines in class_lists(asked.data).items():
        (OUT / f"{dataset}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{dataset}: {len(lines)}")


def class_lists(data: Path) -> dict[str, list[str]]:
    """Return the lines of each file: a name, or for ImageNet a wnid, a tab and a name."""
    detection = load(data / "lists" / "detection_classes.json")
    places = [row["name"][3:] for row in load(data / "lists" / "places365_categories.json")]
    return {
        "cifar10": load(data / "classification" / "cifar10" / "labels.json")["classes"],
        "cifar100": load(data / "classification" / "cifar100" / "labels.json")["classes"],
        "coco": [name.replace("_", " ") for name in detection["coco"]],
        "imagenet1k": imagenet_lines(load(data / "lists" / "imagenet1k.json")),
        "objects365": [name.strip() for name in detection["objects365v2"]],
        "openimages": detection["oid_v6"],
        "places365": places,
        "sun397": as_in_places(load(data / "lists" / "sun397_classes.json"), places),
        "voc": detection["voc"],
    }


def imagenet_lines(rows: list[dict[str, str]]) -> list[str]:
    """Put a readable name behind each wnid, another one for each class."""
    words = [row["lemma"].split(", ") for row in rows]
    uses = Counter(word.lower() for row in words for word in row[:1])
    lines = []
    for row, synonyms in zip(rows, words, strict=True):
        name = next((word for word in synonyms if uses[word.lower()] <= 1), None)
        lines.append(f"{row['wnid']}\t{name or with_kind(synonyms[0], row['wnid'])}")
    return lines


def with_kind(name: str, wnid: str) -> str:
    """Tell two classes of one name apart by what they are a kind of: `crane (wading bird)`."""
    wordnet = load_wordnet()
    kind = wordnet.lemmas(wordnet.hypernyms(wnid)[0])[0]
    return f"{name} ({kind.replace('_', ' ')})"


def as_in_places(names: list[str], places: list[str]) -> list[str]:
    """Put back the slash of names such as `church/indoor`, where Places has the same class."""
    with_slash = {name.replace("/", " ").replace("_", " "): name for name in places if "/" in name}
    return [with_slash.get(name, name).replace("_", " ") for name in names]


def load(path: Path):
    """Read a JSON file."""
    return json.loads(path.read_text())


if __name__ == "__main__":
    main()
