"""What a guard promises, from the definitions, one row at a time."""

import math
from collections.abc import Sequence


def operating_point(
    known: Sequence[float],
    threshold: float,
    predicted: Sequence[int],
    labels: Sequence[int],
    unknown: Sequence[float],
) -> dict[str, tuple[int, int]]:
    """Count rows with a property and rows in all, for each share."""
    accepted = [row for row, score in enumerate(known) if not score > threshold]
    wrong = [row for row in accepted if predicted[row] != labels[row]]
    rejected = [score for score in unknown if score > threshold]
    return {
        "coverage": (len(accepted), len(known)),
        "false_alarms": (len(known) - len(accepted), len(known)),
        "risk": (len(wrong), len(accepted)),
        "unknown_rejected": (len(rejected), len(unknown)),
    }


def energy(logits: Sequence[float]) -> float:
    """Compute the free energy in plain Python."""
    largest = max(logits)
    return -(largest + math.log(math.fsum(math.exp(x - largest) for x in logits)))


def react(
    features: Sequence[float],
    limit: float,
    weight: Sequence[Sequence[float]],
    bias: Sequence[float],
) -> float:
    """Clip the features, apply the head, compute the energy."""
    clipped = [min(x, limit) for x in features]
    return energy(
        [
            math.fsum([b, *(w * x for w, x in zip(row, clipped, strict=True))])
            for row, b in zip(weight, bias, strict=True)
        ]
    )
