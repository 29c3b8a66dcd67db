"""How well densities tell known classes they have not seen from those they have.

A density is to find objects of classes it was not fitted on. Known data show how well it can: some
known classes are left out of the fit and play the unknown ones, in turn. No unknown data are used.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.methods.method import Method
from incognita.methods.numerics.rows import chunks, new_rows
from incognita.methods.numerics.statistics import (
    check_labels,
    overall_covariance,
    overall_mean,
    whitening,
)
from incognita.metrics.ranking import auroc
from incognita.shapes import Bool, Float, Int

_FOLDS = 5


class PrincipalAxes(NamedTuple):
    """The axes of largest variance, largest first, each scaled so that its variance is one."""

    mean: Float[Tensor, "d"]
    projection: Float[Tensor, "d components"]

    def apply(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n components"]:
        """Give the coordinates of rows along the axes, in float64."""
        mean, projection = self.mean.to(rows.device), self.projection.to(rows.device)
        coordinates = new_rows(len(rows), projection.shape[1], dtype=torch.float64)
        first = 0
        for (part,) in chunks(rows):
            coordinates[first : first + len(part)] = (part.double() - mean) @ projection
            first += len(part)
        return coordinates.to(rows.device)


def principal_axes(rows: Float[Tensor, "n d"]) -> PrincipalAxes:
    """Find the axes; those without variance are left out (and all are kept if nothing varies).

    >>> axes = principal_axes(torch.tensor([[1.0, 4.0], [1.0, 8.0]]))
    >>> axes.apply(torch.tensor([[0.0, 10.0]])).abs()
    tensor([[2.]], dtype=torch.float64)
    """
    mean = overall_mean(rows)
    axes = whitening(overall_covariance(rows, mean)).flip(1)
    return PrincipalAxes(mean, axes.contiguous())


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Vectors of boxes, and the class that each box was given."""

    rows: Float[Tensor, "n d"]
    labels: Int[Tensor, "n"]
    n_classes: int

    def __post_init__(self) -> None:
        check_labels(self.labels, self.n_classes)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: Bool[Tensor, "n"] | Int[Tensor, "kept"]) -> "LabelledRows":
        return replace(self, rows=self.rows[which], labels=self.labels[which])

    def along(self, axes: PrincipalAxes) -> "LabelledRows":
        """Give the coordinates of the rows along principal axes."""
        return replace(self, rows=axes.apply(self.rows))

    def outputs(self, n_columns: int | None = None) -> ClassifierOutputs:
        """Give the first columns as the features that a method sees, and no logits to speak of."""
        logits = self.rows.new_zeros(1, self.n_classes).expand(len(self), -1)
        features = self.rows[:, :n_columns].contiguous()
        return ClassifierOutputs(tuple(range(len(self))), logits, features, self.labels)


class Candidate(NamedTuple):
    """A density to choose, and on how many coordinates; copies of the method are fitted."""

    name: str
    method: Method
    n_components: int


def held_out_aurocs(
    candidates: Sequence[Candidate], known: LabelledRows, validation: LabelledRows
) -> list[float]:
    """Give each candidate's mean AUROC over folds of classes; nothing if there is but one class.

    In each fold axes and densities are fitted on known rows of the other classes, and validation
    rows of the classes left out play the unknown ones. A candidate that cannot be fitted in some
    fold gets NaN.
    """
    folds = _folds(known, validation)
    if not folds:
        return []
    judged = validation[torch.isin(validation.labels, torch.cat(folds))]
    aurocs = [_aurocs_of_fold(candidates, known, judged, fold) for fold in folds]
    return [float(mean) for mean in np.mean(aurocs, axis=0)]


def _folds(known: LabelledRows, validation: LabelledRows) -> list[Tensor]:
    """Deal the classes that both parts hold to at most five folds, the most frequent first."""
    counts = torch.bincount(validation.labels, minlength=validation.n_classes)
    is_in_both = (counts > 0) & (torch.bincount(known.labels, minlength=known.n_classes) > 0)
    order = counts.sort(descending=True, stable=True).indices
    classes = order[is_in_both[order]]
    n_folds = min(_FOLDS, len(classes))
    return [classes[k::n_folds] for k in range(n_folds)] if n_folds > 1 else []


def _aurocs_of_fold(
    candidates: Sequence[Candidate],
    known: LabelledRows,
    judged: LabelledRows,
    left_out: Int[Tensor, "classes"],
) -> list[float]:
    kept = known[~torch.isin(known.labels, left_out)]
    axes = principal_axes(kept.rows)
    kept, seen = kept.along(axes), judged.along(axes)
    is_unknown = torch.isin(judged.labels, left_out).cpu().numpy()
    return [_auroc(candidate, kept, seen, is_unknown) for candidate in candidates]


def _auroc(
    candidate: Candidate,
    known: LabelledRows,
    judged: LabelledRows,
    is_unknown: Bool[np.ndarray, "n"],
) -> float:
    parts = [part.outputs(candidate.n_components) for part in (known, judged)]
    try:
        score = copy(candidate.method).fit(parts[0]).score(parts[1])
    except InvalidDataError:
        return float("nan")
    return auroc(score.cpu().numpy(), is_unknown)
