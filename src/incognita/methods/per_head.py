"""One fitted copy of a method for each head of a detector that has several."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from incognita.containers import ClassifierOutputs, ExtraOutput, Needs
from incognita.errors import InvalidDataError, unknown_name
from incognita.methods.method import Method, Rows
from incognita.methods.softmax import Energy
from incognita.shapes import Float, Int

# fits a method to the known and the validation rows of one head, given the index of the head
_FitHead = Callable[[str, ClassifierOutputs, ClassifierOutputs | None], Method]


@dataclass(eq=False)
class PerHead(Method):
    """One fitted copy of `scorer` per head of a detector, each for the rows of its head.

    Each level of a one-stage detector has its own linear layer: features of different levels are
    not comparable, and the logits of all rows have no common head. Copies of `scorer` are fitted,
    one for each head; `scorer` itself is not. A search tries no parameters.

    Where `scorer` cannot be fitted for a head (no known rows, or too few), its rows get the largest
    score of known rows of the other heads, and `notes_` names the head, its number of known rows
    and the reason.

    >>> from incognita.containers.outputs import Head
    >>> from incognita.methods.knn import KNN
    >>> features = torch.tensor([[2.0, 0.0], [0.0, 2.0], [4.0, 3.0]])
    >>> heads, of_rows = (Head(torch.eye(2), torch.zeros(2)),) * 2, torch.tensor([0, 1, 1])
    >>> known = ClassifierOutputs((0, 1, 2), features, features, heads=heads, head_index=of_rows)
    >>> others = replace(known, head_index=torch.tensor([1, 1, 0]))
    >>> PerHead(scorer=KNN(k=1)).fit(known).score(others)  # (1, 0) to (0.8, 0.6), and the other way
    tensor([0.6325, 0.0000, 0.6325], dtype=torch.float64)
    """

    scorer: Method = field(default_factory=Energy, kw_only=True)
    needs: ClassVar[Needs] = Needs(0)  # `all_needs` are those of `scorer`

    @property
    def title(self) -> str:
        """The name of the wrapped method."""
        return self.scorer.title

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        if known.outputs.head_index is not None:
            fit = lambda _, *parts: copy(self.scorer).fit(*parts)  # noqa: E731
            self._fit_heads(known.outputs, validation.outputs, fit)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        outputs = rows.outputs
        score = torch.zeros(len(outputs), dtype=torch.float64, device=outputs.logits.device)
        for place in range(len(outputs.heads)):
            is_here = _head_index(self.title, outputs) == place
            if is_here.any():
                score[is_here] = self._score_head(place, outputs.of_head(place))
        return score

    def notes_on(self, known: ClassifierOutputs) -> list[str]:
        fitted: dict[str, Method] = getattr(self, "fitted_", {})
        return [
            f"head {place}: {note}"
            for place, method in fitted.items()
            for note in method.notes_on(known.of_head(int(place)))
        ]

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        methods = list(getattr(self, "fitted_", {}).values()) or [self.scorer]
        return tuple(
            {extra.key: extra for method in methods for extra in method.extra_outputs()}.values()
        )

    def extra_outputs_to_fit(self, part: str) -> tuple[ExtraOutput, ...]:
        return self.scorer.extra_outputs_to_fit(part)

    def check(self, outputs: ClassifierOutputs, *, is_fitting: bool = False) -> None:
        """Raise for rows without a valid head index; `scorer` checks the rest."""
        if is_fitting and not self._needs_rows():
            return
        head_index = _head_index(self.title, outputs)
        if not ((head_index >= 0) & (head_index < len(outputs.heads))).all():
            raise InvalidDataError(
                f"Rows of {self.title} must be of heads 0 to {len(outputs.heads) - 1}, but one is "
                f"of head {int(head_index.max())}; pass the heads in the order of head_index."
            )
        if is_fitting:
            return
        self._check_fitted()
        self._check_widths(outputs)
        if len(outputs.heads) != getattr(self, "n_heads_", len(outputs.heads)):
            raise InvalidDataError(
                f"{self.title} was fitted for {self.n_heads_} heads, got outputs of "
                f"{len(outputs.heads)}. Score outputs of the detector it was fitted on."
            )

    def with_parameters(
        self,
        known: ClassifierOutputs,
        validation: ClassifierOutputs | None = None,
        **changes: Any,
    ) -> "PerHead":
        """Return a fitted copy with other parameters of `scorer`, in every head."""
        for name in changes:
            if name not in self.scorer.parameters():
                raise unknown_name(f"parameter of {self.title}", name, self.scorer.parameters())
        other = replace(self, scorer=replace(self.scorer, **changes))
        fitted: dict[str, Method] = getattr(self, "fitted_", {})

        def refit(place: str, *parts: Any) -> Method:
            if place in fitted:
                return fitted[place].with_parameters(*parts, **changes)
            return copy(other.scorer).fit(*parts)

        if known.head_index is not None:
            other._fit_heads(known, known if validation is None else validation, refit)
            other._remember_widths(known)
        return other

    def _needs_rows(self) -> bool:
        return bool(self.scorer.all_needs & (Needs.KNOWN | Needs.VALIDATION))

    def _check_fitted(self) -> None:
        if not hasattr(self, "fitted_"):
            self.scorer._check_fitted()

    def _fit_heads(
        self, known: ClassifierOutputs, validation: ClassifierOutputs, fit: _FitHead
    ) -> None:
        """Fit every head that can be, and note the others."""
        self.n_heads_, self.fitted_ = len(known.heads), dict[str, Method]()
        notes = []
        for place in range(self.n_heads_):
            part = known.of_head(place)
            held_out = None if validation is known else validation.of_head(place)
            try:
                self.fitted_[str(place)] = self._fit_head(place, part, held_out, fit)
            except (InvalidDataError, LinAlgError) as error:
                notes.append(f"Head {place} could not be fitted to {len(part)} known rows: {error}")
        if not self.fitted_:
            raise InvalidDataError(
                f"{self.title} could be fitted for none of {self.n_heads_} heads. {notes[0]}"
            )
        self.largest_: float | None = None
        if notes:
            parts = (known,) if validation is known else (known, validation)
            self.largest_ = self._largest_score(parts)
            notes.append(f"Rows there get {self.largest_:.4g}, the largest score of known rows.")
        self.notes_ = f"{self.title}: {' '.join(notes)}" if notes else ""

    def _fit_head(
        self,
        place: int,
        known: ClassifierOutputs,
        held_out: ClassifierOutputs | None,
        fit: _FitHead,
    ) -> Method:
        if held_out is not None and not len(held_out):
            held_out = None  # known rows then serve as validation rows, too
        if self._needs_rows() and not len(known) and held_out is None:
            raise InvalidDataError(f"Head {place} has no known rows to fit.")
        return fit(str(place), known, held_out)

    def _largest_score(self, parts: Sequence[ClassifierOutputs]) -> float:
        """Return the largest score of known rows whose head could be fitted."""
        scores = [
            method.score(part.of_head(int(place)))
            for part in parts
            for place, method in self.fitted_.items()
        ]
        return float(torch.cat(scores).max())

    def _score_head(self, place: int, outputs: ClassifierOutputs) -> Float[Tensor, "n"]:
        method = self.fitted_.get(str(place)) if hasattr(self, "fitted_") else self.scorer
        if method is not None:
            return method.score(outputs)
        largest = float("nan") if self.largest_ is None else self.largest_  # set for such a head
        return outputs.logits.new_full((len(outputs),), largest, dtype=torch.float64)


def _head_index(title: str, outputs: ClassifierOutputs) -> Int[Tensor, "n"]:
    if outputs.head_index is None:
        raise InvalidDataError(
            f"{title} is fitted per head, but the outputs have no head_index; "
            f"use {title} itself, not PerHead."
        )
    return outputs.head_index


def for_heads(method: Method, n_heads: int, *, shares_features: bool) -> Method:
    """Wrap the method in `PerHead` where rows of several heads cannot be compared.

    Args:
        method: The method to be fitted.
        n_heads: The number of linear layers that compute the logits.
        shares_features: Whether all of them have the same kind of features as input.

    >>> from incognita.methods import load_method
    >>> methods = [load_method(name) for name in ("energy", "knn", "react")]
    >>> [type(for_heads(m, 3, shares_features=True)).__name__ for m in methods]
    ['Energy', 'KNN', 'PerHead']
    >>> [type(for_heads(m, 3, shares_features=False)).__name__ for m in methods]
    ['Energy', 'PerHead', 'PerHead']
    """
    needs = method.all_needs
    needs_apart = Needs.HEAD in needs or (Needs.FEATURES in needs and not shares_features)
    return PerHead(scorer=method) if n_heads > 1 and needs_apart else method
