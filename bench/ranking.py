"""All ranking metrics together: ours, the peers that compute the same numbers, and `np.sort`.

Half of the scores are unknown and lie one standard deviation above the known ones. Every peer is
first checked to give our numbers; a fast wrong answer is not in the race.
"""

from collections.abc import Callable

import numpy as np

from bench.harness import (
    Row,
    Run,
    at_least,
    at_most,
    compare,
    growth,
    measure,
    memory_per_row,
    peer,
)
from incognita.metrics.ranking import ranking_metrics

SIZES = (10**6, 10**7)
CHECKED_ROWS = 10**5
OURS = "incognita, float32"
PYTORCH_OOD_BARS = {10**6: at_least(8), 10**7: at_least(12)}

Numbers = dict[str, float]


def rows() -> list[Row]:
    """Compare at both sizes; then judge growth and memory."""
    check_peers()
    table = []
    seconds = {}
    for n_rows in SIZES:
        part = f"{n_rows:.0e} scores"
        cases = cases_of(n_rows)
        measured = measure(cases)
        bars = {
            "pytorch-ood OODMetrics": PYTORCH_OOD_BARS[n_rows],
            "scikit-learn, 4 calls": at_least(25),
        }
        table += compare(part, cases, measured, ours=OURS, bars=bars)
        seconds[n_rows] = measured[OURS].seconds
        table.append(memory_per_row(part, OURS, measured[OURS], n_rows, at_most(12)))
    table.append(growth("growth", OURS, seconds, at_most(1.1)))
    return table


def cases_of(n_rows: int) -> dict[str, Run | None]:
    double, is_unknown = scores(n_rows)
    score = double.astype(np.float32)
    return {
        OURS: lambda: ranking_metrics(score, is_unknown),
        "incognita, float64": lambda: ranking_metrics(double, is_unknown),
        "np.sort, float32": lambda: np.sort(score),
        "np.sort, float64": lambda: np.sort(double),
        **peers_of(score, is_unknown),
    }


def scores(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    is_unknown = rng.random(n_rows) < 0.5
    return rng.standard_normal(n_rows) + is_unknown, is_unknown


def check_peers() -> None:
    """Stop where a peer and we disagree on a number that both give."""
    double, is_unknown = scores(CHECKED_ROWS)
    score = double.astype(np.float32)
    ours = ranking_metrics(score, is_unknown)
    for library, run in peers_of(score, is_unknown).items():
        numbers = run() if run else {}
        for name, value in numbers.items():
            mine = getattr(ours, name)
            if abs(value - mine) > 1e-6:
                raise SystemExit(f"{library} gives {name} {value}, incognita {mine}.")


def peers_of(score: np.ndarray, is_unknown: np.ndarray) -> dict[str, Callable[[], Numbers] | None]:
    return {
        "pytorch-ood OODMetrics": peer("pytorch_ood", lambda: pytorch_ood(score, is_unknown)),
        "torchmetrics, 4 calls": peer("torchmetrics", lambda: torchmetrics(score, is_unknown)),
        "scikit-learn, 4 calls": peer("sklearn", lambda: scikit_learn(score, is_unknown)),
    }


def scikit_learn(score: np.ndarray, is_unknown: np.ndarray) -> Callable[[], Numbers]:
    from sklearn import metrics

    is_known, known_score = ~is_unknown, -score

    def run() -> Numbers:
        fpr, tpr, _ = metrics.roc_curve(is_unknown, score)
        return {
            "auroc": metrics.roc_auc_score(is_unknown, score),
            "aupr_unknown": metrics.average_precision_score(is_unknown, score),
            "aupr_known": metrics.average_precision_score(is_known, known_score),
            "fpr_at_95_unknown_recall": fpr[np.argmax(tpr >= 0.95)],
        }

    return run


def pytorch_ood(score: np.ndarray, is_unknown: np.ndarray) -> Callable[[], Numbers]:
    import torch
    from pytorch_ood.metrics import OODMetrics

    scores, labels = torch.from_numpy(score), -torch.from_numpy(is_unknown).long()

    def run() -> Numbers:
        metrics = OODMetrics().update(scores, labels).compute()
        return {
            "auroc": metrics["AUROC"],
            "aupr_unknown_trapezoid": metrics["AUPR-OUT"],
            "aupr_known_trapezoid": metrics["AUPR-IN"],
            "fpr_at_95_unknown_recall": metrics["FPR95TPR"],
        }

    return run


def torchmetrics(score: np.ndarray, is_unknown: np.ndarray) -> Callable[[], Numbers]:
    import torch
    from torchmetrics.functional import classification

    # Outside of [0, 1] torchmetrics would take scores for logits and tie many of them.
    scores = torch.from_numpy((score - score.min()) / (score.max() - score.min()))
    labels = torch.from_numpy(is_unknown).long()
    known_scores, known_labels = 1 - scores, 1 - labels

    def run() -> Numbers:
        fpr, tpr, _ = classification.binary_roc(scores, labels)
        precision = classification.binary_average_precision
        return {
            "auroc": float(classification.binary_auroc(scores, labels)),
            "aupr_unknown": float(precision(scores, labels)),
            "aupr_known": float(precision(known_scores, known_labels)),
            "fpr_at_95_unknown_recall": float(fpr[(tpr >= 0.95).int().argmax()]),
        }

    return run
