"""Scores of single boxes as a table on disk.

With the truth, every number of the paper's conventions can be computed again from it; those under
the name of FMIYC's code need the logits too, and average precision the boxes below t*.
"""

from collections.abc import Sequence

import numpy as np
import polars

from incognita.evaluation.detector_metrics import Decided
from incognita.running.box_sets import BoxSet


def box_frame(sets: Sequence[BoxSet], decided: Decided) -> polars.DataFrame:
    """Give one row per kept box.

    Columns: set, group, image_id, x1, y1, x2, y2, predicted, confidence, source_index,
    unknown_score, is_called_unknown.
    """
    return polars.concat([_of_set(each, decided) for each in sets])


def _of_set(each: BoxSet, decided: Decided) -> polars.DataFrame:
    kept, score = each.kept, decided.scores[each.name]
    images = [str(kept.image_ids[k]) for k in kept.image_index]
    names = np.array(kept.classes.names, dtype=object)
    corners = {f"{axis}{k}": kept.xyxy[:, c] for c, (axis, k) in enumerate(_CORNERS)}
    columns = {
        "set": [each.name] * len(kept),
        "group": [each.group] * len(kept),
        "image_id": images,
        **corners,
        "predicted": names[kept.class_ids].tolist(),
        "confidence": kept.confidence.astype(np.float64),
        "source_index": kept.source_index.astype(np.int64),
        "unknown_score": score,
        "is_called_unknown": decided.tau.is_unknown(score),
    }
    text = dict.fromkeys(("set", "group", "image_id", "predicted"), polars.String)
    return polars.DataFrame(columns, schema_overrides=text)


_CORNERS = (("x", 1), ("y", 1), ("x", 2), ("y", 2))
