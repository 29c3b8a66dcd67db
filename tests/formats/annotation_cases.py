"""Small annotation files, for tests of splits."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NAMES = ("cat", "dog", "fork", "fox", "zebra", "cup", "kite", "boat")


def document(
    held: Mapping[Any, Sequence[str]], names: Sequence[str] = NAMES, *, first: int = 1
) -> dict[str, Any]:
    """Annotate images by the names of what they hold; `first` is the first annotation's id."""
    numbers = {name: number for number, name in enumerate(names, start=1)}
    rows = [(image_id, name) for image_id, inside in held.items() for name in inside]
    return {
        "info": {"year": 2025},
        "licenses": [{"id": 2, "name": "CC BY"}],
        "images": [
            {"id": each, "file_name": f"{each}.jpg", "width": 40, "height": 30, "license": 2}
            for each in held
        ],
        "annotations": [
            {
                "id": place,
                "image_id": image_id,
                "category_id": numbers[name],
                "bbox": [1.5, 2.0, 10.25, 7.0],
                "area": 71.75,
                "iscrowd": 0,
                "segmentation": [[1.5, 2.0, 11.75, 9.0, 3.0, 9.0]],
            }
            for place, (image_id, name) in enumerate(rows, start=first)
        ],
        "categories": [
            {"id": number, "name": name, "supercategory": "thing"}
            for name, number in numbers.items()
        ],
    }


def write(path: Path, content: Any) -> Path:
    """Write JSON, or text as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path
