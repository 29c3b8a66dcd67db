"""Near, far and farther splits in slow loops, step by step as the notes number them.

Sources: notes, section 2.1, steps 1 to 6; FMIYC section 4.1 and appendix B. The steps move ids
between pools, one list after the other, where the package asks once per image.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Held = Mapping[Any, set[str]]  # names of the categories that each image holds


def deal_out(
    base: Held, candidates: Held, rules: Mapping[str, Any]
) -> tuple[dict[Any, str], dict[Any, str]]:
    """Give the pool of each image of the base and of each candidate that was looked at."""
    pools: dict[str, list[Any]] = {"near": [], "far": [], "farther": [], "dropped": []}
    # step 1: the base; step 2: known and overlapping categories and ids, minus those to keep
    removed = []
    for image_id, names in base.items():
        for name in names:
            if (name in rules["known"] or name in rules["remove"]) and image_id not in removed:
                removed.append(image_id)
    for image_id in rules["remove_ids"]:
        if image_id in base and image_id not in removed:
            removed.append(image_id)
    for image_id in rules["keep_to_near_ids"]:
        if image_id in removed:
            removed.remove(image_id)
    # step 3: near categories and those to keep are near, the rest is far
    for image_id, names in base.items():
        if image_id in removed:
            continue
        if image_id in rules["keep_to_near_ids"] or names & set(rules["near"]):
            pools["near"].append(image_id)
        elif names & set(rules["far"]):
            pools["far"].append(image_id)
        elif names & set(rules["farther"]):
            pools["farther"].append(image_id)
        else:
            pools["dropped" if rules["rest"] == "drop" else rules["rest"]].append(image_id)
    # step 4: one pass by hand over what is left
    for image_id in rules["review_remove_ids"]:
        _take(pools, image_id)
    for split, name in (("near", "to_near_ids"), ("far", "to_far_ids")):
        for image_id in rules[name]:
            if _take(pools, image_id):
                pools[split].append(image_id)
    decided = dict.fromkeys(base, "removed")
    for split, pool in pools.items():
        for image_id in pool:
            decided[image_id] = "removed" if split == "dropped" else split
    return decided, _add_candidates(base, candidates, rules)


def _take(pools: dict[str, list[Any]], image_id: Any) -> bool:
    for pool in pools.values():
        if image_id in pool:
            pool.remove(image_id)
            return True
    return False


def _add_candidates(base: Held, candidates: Held, rules: Mapping[str, Any]) -> dict[Any, str]:
    """Step 5: listed images of a second file, with all they hold; what is known stays out."""
    added: dict[Any, str] = {}
    for split in ("near", "far", "farther"):
        for image_id in rules["candidates"][split]:
            if image_id not in candidates or image_id in base or image_id in added:
                continue
            is_known = any(name in rules["known"] for name in candidates[image_id])
            added[image_id] = "removed" if is_known else split
    return added


def openimages_boxes(
    path: Path, sizes: Mapping[str, tuple[int, int]], wanted: Sequence[str]
) -> list[dict[str, Any]]:
    """Step 6: boxes of OpenImages, line by line with the standard library."""
    found = []
    with path.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=1):
            if row["ImageID"] not in wanted or row["ImageID"] not in sizes:
                continue
            width, height = sizes[row["ImageID"]]
            x = round(float(row["XMin"]) * width, 2)
            y = round(float(row["YMin"]) * height, 2)
            w = round((float(row["XMax"]) - float(row["XMin"])) * width, 2)
            h = round((float(row["YMax"]) - float(row["YMin"])) * height, 2)
            found.append(
                {
                    "id": number,
                    "image_id": row["ImageID"],
                    "label": row["LabelName"],
                    "bbox": [x, y, w, h],
                    "iscrowd": 1 if row["IsGroupOf"] == "1" else 0,
                }
            )
    return found
