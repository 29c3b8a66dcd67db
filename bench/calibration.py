"""LaECE of 4.5 million detections in 80 classes, against one class of a general ECE."""

import numpy as np

from bench.harness import Row, Run, at_least, compare, measure, peer
from incognita.metrics.calibration import laece

N_ROWS, N_CLASSES, N_BINS = 4_500_000, 80, 25
OURS = "incognita, LaECE of 80 classes"


def rows() -> list[Row]:
    rng = np.random.default_rng(0)
    confidence = rng.beta(1, 6, N_ROWS).astype(np.float32)
    quality = np.where(rng.random(N_ROWS) < confidence, rng.random(N_ROWS), 0).astype(np.float32)
    class_ids = rng.integers(0, N_CLASSES, N_ROWS).astype(np.int32)
    cases: dict[str, Run | None] = {
        OURS: lambda: laece(confidence, quality, class_ids=class_ids, n_classes=N_CLASSES),
        "torchmetrics, ECE of one class": peer(
            "torchmetrics", lambda: torchmetrics_ece(confidence, quality)
        ),
        "limit: read the columns": lambda: (confidence.max(), quality.max(), class_ids.max()),
    }
    check(confidence, quality, class_ids)
    bars = {"torchmetrics, ECE of one class": at_least(30)}
    return compare("4.5e6 detections", cases, measure(cases), ours=OURS, bars=bars)


def check(confidence: np.ndarray, quality: np.ndarray, class_ids: np.ndarray) -> None:
    """Stop where the one pass differs from masks per class and bin."""
    keep = slice(0, 50_000)
    p, q, c = confidence[keep].astype(np.float64), quality[keep].astype(np.float64), class_ids[keep]
    edges = np.linspace(0, 1, N_BINS + 1)
    errors = []
    for label in range(N_CLASSES):
        mine = c == label
        place = np.digitize(p[mine], edges[1:-1])
        gaps = [abs((p[mine] - q[mine])[place == k].sum()) for k in range(N_BINS)]
        errors.append(sum(gaps) / mine.sum())
    ours = laece(confidence[keep], quality[keep], class_ids=c, n_classes=N_CLASSES)
    if abs(ours - np.mean(errors)) > 1e-9:
        raise SystemExit(f"incognita gives LaECE {ours}, its definition {np.mean(errors)}.")


def torchmetrics_ece(confidence: np.ndarray, quality: np.ndarray) -> Run:
    import torch
    from torchmetrics.functional.classification import binary_calibration_error

    torch.set_num_threads(1)
    scores, labels = torch.from_numpy(confidence), torch.from_numpy(quality > 0).long()
    return lambda: binary_calibration_error(scores, labels, n_bins=N_BINS)
