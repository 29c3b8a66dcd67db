"""Super-class splits of OpenImages in slow loops, from the sentences of the paper and of the rules.

Sources: Ammar et al., section 3.3; issue "Open-set builders". Nothing is shared with the package:
the hierarchy is searched as the tree it is, boxes are compared all with all, lines are read one by
one by the standard library.
"""

import binascii
import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def nodes(tree: Mapping[str, Any], *, parts: bool = True) -> Iterator[Mapping[str, Any]]:
    yield tree
    for child in tree.get("Subcategory", []) + (tree.get("Part", []) if parts else []):
        yield from nodes(child, parts=parts)


def at_or_below(tree: Mapping[str, Any], label: str) -> set[str]:
    """Labels of the subtrees that begin with a label; parts do not count."""
    found = {label}
    for node in nodes(tree):
        if node["LabelName"] == label:
            found |= {inner["LabelName"] for inner in nodes(node, parts=False)}
    for inner in list(found):  # what is below it in one place may have more below it in another
        for node in nodes(tree):
            if node["LabelName"] == inner and inner != label:
                found |= {k["LabelName"] for k in nodes(node, parts=False)}
    return found


def depth(tree: Mapping[str, Any], label: str, here: int = 0) -> int:
    best = here if tree["LabelName"] == label else 0
    for child in tree.get("Subcategory", []) + tree.get("Part", []):
        best = max(best, depth(child, label, here + 1))
    return best


def iou(a: Mapping[str, str], b: Mapping[str, str]) -> float:
    x1, x2, y1, y2 = (float(a[k]) for k in ("XMin", "XMax", "YMin", "YMax"))
    u1, u2, v1, v2 = (float(b[k]) for k in ("XMin", "XMax", "YMin", "YMax"))
    inside = max(0.0, min(x2, u2) - max(x1, u1)) * max(0.0, min(y2, v2) - max(y1, v1))
    union = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - inside
    return inside / union if union > 0 else 0.0


def split(folder: Path, rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return the role of each class, the part of each chosen image, and the lines kept."""
    tree = json.loads((folder / "bbox_labels_600_hierarchy.json").read_text())
    with (folder / "class-descriptions-boxable.csv").open(newline="") as file:
        name_of = dict(csv.reader(file))
    label_of = {name: label for label, name in name_of.items()}
    with (folder / "train-annotations-bbox.csv").open(newline="") as file:
        lines = list(enumerate(csv.DictReader(file), start=1))
    groups = rules.get("superclasses", {})

    def reach(name: str) -> set[str]:
        members = groups.get(name, [name])
        return set().union(*(at_or_below(tree, label_of[member]) for member in members))

    def reach_all(names: list[str]) -> set[str]:
        return set().union(*(reach(name) for name in names))

    wanted, unwanted = reach_all(rules["contains"]), reach_all(rules["excludes"])
    chosen = set()
    for image in {row["ImageID"] for _, row in lines}:
        held = {row["LabelName"] for _, row in lines if row["ImageID"] == image}
        if (held & wanted or not rules["contains"]) and not held & unwanted:
            chosen.add(image)
    gone = reach_all(rules["removed"])
    for node in nodes(tree):
        owner = name_of.get(node["LabelName"])
        if rules["parts_of"] is None or owner in rules["parts_of"]:
            for part in node.get("Part", []):
                gone |= at_or_below(tree, part["LabelName"])
    tops = [k["LabelName"] for k in tree["Subcategory"] if k.get("Subcategory")]
    above: dict[str, str] = {}
    for name in [*groups, *dict.fromkeys(name_of[label] for label in tops)]:
        for label in reach(name):
            above.setdefault(label, name)
    lines = [
        (number, row)
        for number, row in lines
        if row["ImageID"] in chosen and row["LabelName"] not in gone and row["LabelName"] in above
    ]
    if rules["doubles"] == "drop":
        lines = without_doubles(lines, tree, name_of, above, rules["same_place_iou"])
    roles = roles_of([row for _, row in lines], name_of, above, rules)
    return {"roles": roles, "parts": parts_of(lines, name_of, roles, rules),
            "lines": {number for number, _ in lines}, "above": above}  # fmt: skip


def without_doubles(lines, tree, name_of, above, limit):
    labels = [row["LabelName"] for _, row in lines]

    def order(number, row):  # the smallest is the best
        label = row["LabelName"]
        return -depth(tree, label), -labels.count(label), name_of[label], number

    kept = []
    for number, row in lines:
        is_beaten = any(
            row["ImageID"] == other["ImageID"]
            and above[row["LabelName"]] == above[other["LabelName"]]
            and iou(row, other) >= limit
            and order(other_number, other) < order(number, row)
            for other_number, other in lines
            if other_number != number
        )
        if not is_beaten:
            kept.append((number, row))
    return kept


def roles_of(rows, name_of, above, rules) -> dict[str, str]:
    count: dict[str, int] = {}
    for row in rows:
        count[row["LabelName"]] = count.get(row["LabelName"], 0) + 1
    roles = {}
    for superclass in set(above.values()):
        inside = [label for label in count if above[label] == superclass]
        for label in inside:
            if name_of[label] in rules["ignored"]:
                roles[name_of[label]] = "ignored"
        inside = [label for label in inside if name_of[label] not in rules["ignored"]]
        for label in inside:
            n_before = sum(
                (count[k], name_of[label]) > (count[label], name_of[k])
                for k in inside
                if k != label
            )
            twice = 2 * n_before  # how many classes are more frequent, against half of all
            half = {"up": len(inside) + len(inside) % 2, "nearest": len(inside) + len(inside) % 2,
                    "down": len(inside) - len(inside) % 2}[rules["rounding"]]  # fmt: skip
            is_known = twice < half and count[label] >= rules["smallest_known"]
            roles[name_of[label]] = "known" if is_known else "unknown"
    return roles


def parts_of(lines, name_of, roles, rules) -> dict[str, str]:
    parts = {}
    train, validation = rules["shares"]["train"], rules["shares"]["validation"]
    for image in {row["ImageID"] for _, row in lines}:
        held = {roles[name_of[row["LabelName"]]] for _, row in lines if row["ImageID"] == image}
        share = binascii.crc32(image.encode()) / 2**32
        if not held & {"known", "unknown"}:
            continue
        if rules["scenario"] == "unseen" and "unknown" in held:
            part = "validation" if share < validation / (1 - train) else "test"
        else:
            part = (
                "train" if share < train else "validation" if share < train + validation else "test"
            )
        if part == "validation" and {"known", "unknown"} <= held:
            part = "test"
        parts[image] = part
    return parts
