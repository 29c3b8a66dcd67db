"""The contract of a method: outputs of a model in, one unknown score per row out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from enum import Enum, StrEnum
from typing import Any, ClassVar, final

from torch import Tensor

from incognita.containers import ClassifierOutputs, ExtraOutput, Head, Needs
from incognita.errors import InvalidDataError, unknown_name
from incognita.shapes import Float, Int

_POOLED = Needs.LAYERS | Needs.LATENT | Needs.SHORTCUTS


class Refit(Enum):
    """What has to be repeated when a parameter changes.

    STATISTICS: the whole fit. FINALIZE: only its second, cheap step. A parameter that is not
    listed acts when scoring, and nothing is repeated.
    """

    STATISTICS = "statistics"
    FINALIZE = "finalize"


@dataclass(frozen=True, eq=False)
class Rows:
    """The outputs as one method sees them: the columns it declared in `needs`, never None.

    Reading a column that the method did not declare, or that the outputs lack, raises an
    `InvalidDataError`.

    Args:
        outputs: All columns, for a method that passes them on to another one.
        method: The method that reads the rows.
    """

    outputs: ClassifierOutputs
    method: "Method"

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def image_ids(self) -> tuple[Any, ...]:
        """One id per row."""
        return self.outputs.image_ids

    @property
    def n_classes(self) -> int:
        """The number of known classes."""
        return self.outputs.logits.shape[1]

    @property
    def logits(self) -> Float[Tensor, "n classes"]:
        """The scores before the softmax."""
        self._check_declared("logits", Needs.LOGITS)
        return self.outputs.logits

    @property
    def features(self) -> Float[Tensor, "n d"]:
        """The vectors that the head sees."""
        self._check_declared("features", Needs.FEATURES)
        if self.outputs.features is None:
            raise _missing(self.method, "features")
        return self.outputs.features

    @property
    def head(self) -> Head:
        """The layer between features and logits."""
        self._check_declared("head", Needs.HEAD)
        if self.outputs.head is None:
            raise _missing(self.method, "a linear head")
        return self.outputs.head

    @property
    def labels(self) -> Int[Tensor, "n"]:
        """The true class of each row."""
        self._check_declared("labels", Needs.LABELS)
        if self.outputs.labels is None:
            raise _missing_labels(self.method, "outputs")
        return self.outputs.labels

    @property
    def layers(self) -> Mapping[str, Float[Tensor, "n _"]]:
        """Pooled features of layers by name."""
        self._check_declared("layers", _POOLED)
        return self.outputs.layers or {}

    def layer(self, name: str) -> Float[Tensor, "n _"]:
        """Return the pooled features of one layer."""
        if name not in self.layers:
            raise InvalidDataError(
                f"{self.method.title} uses the layer {name!r}, but the outputs hold "
                f"{sorted(self.layers)}; extract that layer too, or choose among these."
            )
        return self.layers[name]

    def columns(self, extra: ExtraOutput) -> dict[str, Tensor]:
        """Return the columns of an extra output by their short names."""
        prefix = f"{extra.key}/"
        recorded = self.outputs.extra_outputs or {}
        found = {name[len(prefix) :]: t for name, t in recorded.items() if name.startswith(prefix)}
        if not found:
            raise _missing_extra(self.method, extra)
        return found

    def column(self, extra: ExtraOutput, name: str) -> Tensor:
        """Return one column of an extra output."""
        found = self.columns(extra)
        if name not in found:
            raise InvalidDataError(
                f"{self.method.title} needs the column {name!r} of the extra output {extra.key}, "
                f"but the outputs hold {sorted(found)}; extract them again with "
                f"extra_outputs=method.extra_outputs()."
            )
        return found[name]

    def _check_declared(self, column: str, needs: Needs) -> None:
        # numbers, because combining flags takes a microsecond; seldom is it a need of the scorer
        if needs.value & self.method.needs.value:
            return
        if not needs & self.method.all_needs:
            first = next(iter(needs)).name
            raise InvalidDataError(
                f"{self.method.title} uses {column} but does not declare Needs.{first}."
            )


@dataclass(eq=False)
class Method(ABC):
    """One post-hoc method. A subclass is a dataclass whose fields are its parameters.

    A subclass declares in `needs` what it uses and writes `score_rows`; one that learns also
    writes `fit_statistics` or `finalize`. Learned state is set on the instance under names that
    end in an underscore: tensors, floats, or another method. `fit` runs `fit_statistics`, which
    costs time and depends on few parameters, then `finalize`, which is cheap and may depend on
    more; a search repeats only what a parameter `invalidates`.

    >>> @dataclass(eq=False)
    ... class FarFromMean(Method):
    ...     power: float = 2.0
    ...     needs = Needs.FEATURES | Needs.KNOWN
    ...
    ...     def fit_statistics(self, known, validation):
    ...         self.mean_ = known.features.double().mean(dim=0)
    ...
    ...     def score_rows(self, rows):
    ...         return (rows.features.double() - self.mean_).norm(dim=1) ** self.power
    >>> import torch
    >>> features = torch.tensor([[0.0], [4.0]])
    >>> known = ClassifierOutputs(("a", "b"), torch.zeros(2, 1), features)
    >>> FarFromMean().fit(known).score(known)
    tensor([4., 4.], dtype=torch.float64)
    """

    needs: ClassVar[Needs] = Needs.LOGITS
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    invalidates: ClassVar[Mapping[str, Refit]] = {}
    # which of "known" and "validation" `fit` reads extra outputs of; scoring always does
    fits_on_extra_outputs_of: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        written = {
            "score": "score_rows(self, rows)",
            "fit": "fit_statistics(self, known, validation)",
        }
        for name, instead in written.items():
            if name in vars(cls):
                raise TypeError(
                    f"{cls.__name__} overrides {name}, which checks the outputs; "
                    f"write {instead} instead."
                )

    @final
    def fit(
        self,
        known: ClassifierOutputs | Rows,
        validation: ClassifierOutputs | Rows | None = None,
    ) -> "Method":
        """Learn from outputs of the known training set (and of known validation data)."""
        known_rows, held_out = self._rows_to_fit(known, validation)
        self.check(known_rows.outputs, is_fitting=True)
        self._check_labels(known_rows, held_out)
        self.fit_statistics(known_rows, held_out)
        self.finalize(known_rows, held_out)
        self._remember_widths(known_rows.outputs)
        return self

    @final
    def score(self, outputs: ClassifierOutputs | Rows) -> Float[Tensor, "n"]:
        """Return one float64 number per row; higher means more unknown."""
        whole = _outputs(outputs)
        self.check(whole)
        n = len(whole)
        scores = self.score_rows(Rows(whole, self))
        self._check_scores(scores, n)
        return scores

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        """Set the state that costs time; `validation` is `known` where there is none."""
        return

    def finalize(self, known: Rows, validation: Rows) -> None:
        """Set the state that follows cheaply from the statistics and the parameters."""
        return

    @abstractmethod
    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        """Compute the score of rows that hold everything the method needs."""

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        """Return what the pass must record for `score`; some methods know it only once fitted."""
        return ()

    def extra_outputs_to_fit(self, part: str) -> tuple[ExtraOutput, ...]:
        """Return what the pass must record of the `known` or the `validation` part for `fit`."""
        return self.extra_outputs() if part in self.fits_on_extra_outputs_of else ()

    def notes_on(self, known: ClassifierOutputs) -> list[str]:
        """Return what a reader should know about this fit to known rows; by default the scorer's.

        They are shown below the tables and kept in the result.
        """
        scorer = getattr(self, "scorer", None)
        return scorer.notes_on(known) if isinstance(scorer, Method) else []

    def check(self, outputs: ClassifierOutputs, *, is_fitting: bool = False) -> None:
        """Raise if the outputs lack something that this method needs, naming it."""
        needs = self.all_needs.value  # numbers, because combining flags takes a microsecond
        if is_fitting and needs & Needs.KNOWN.value and not len(outputs):
            raise InvalidDataError(
                f"{self.title} learns from known outputs, got none. Pass those of known images."
            )
        tables = {
            "features": (Needs.FEATURES, outputs.features),
            "a linear head": (Needs.HEAD, outputs.head),
            "pooled layer features": (Needs.LAYERS, outputs.layers or None),
            "a latent layer pooled over boxes": (Needs.LATENT, _named(outputs, "latent/")),
            "shortcut layers pooled over boxes": (Needs.SHORTCUTS, _named(outputs, "shortcut/")),
        }
        for what, (need, column) in tables.items():
            if column is None and need.value & needs:
                raise _missing(self, what)
        if not is_fitting:
            self._check_fitted()
            self._check_widths(outputs)
            recorded = outputs.extra_outputs or {}
            for extra in self.extra_outputs():
                if not any(name.startswith(f"{extra.key}/") for name in recorded):
                    raise _missing_extra(self, extra)

    @property
    def all_needs(self) -> Needs:
        """What this method needs, together with the method it wraps."""
        scorer = getattr(self, "scorer", None)
        return self.needs | scorer.all_needs if isinstance(scorer, Method) else self.needs

    @property
    def title(self) -> str:
        """The name people know the method by."""
        return type(self).__name__

    def parameters(self) -> dict[str, Any]:
        """Return the parameters and their values, without the method it wraps."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if not isinstance(value, Method)}

    def state(self) -> dict[str, Any]:
        """Return what was learned, by attribute name."""
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def with_parameters(
        self,
        known: ClassifierOutputs,
        validation: ClassifierOutputs | None = None,
        **changes: Any,
    ) -> "Method":
        """Return a fitted copy with other parameters; only what they invalidate is fitted again."""
        for name in changes:
            if name not in self.parameters():
                raise unknown_name(f"parameter of {self.title}", name, self.parameters())
        changed = {name for name, value in changes.items() if getattr(self, name) != value}
        refits = {self.invalidates[name] for name in changed if name in self.invalidates}
        other = replace(self, **changes)
        for name, value in self.state().items():
            setattr(other, name, value)
        if isinstance(scorer := getattr(self, "scorer", None), Method):
            other.scorer = copy(scorer)  # type: ignore[attr-defined]  # fitted again, the first is not
        parts = other._rows_to_fit(known, validation)
        if Refit.STATISTICS in refits:
            other.fit_statistics(*parts)
        if refits:
            other.finalize(*parts)
            other._remember_widths(known)
        return other

    def _rows_to_fit(
        self,
        known: ClassifierOutputs | Rows,
        validation: ClassifierOutputs | Rows | None,
    ) -> tuple[Rows, Rows]:
        """Return both parts as rows; the same object twice where nothing is held out."""
        first = _outputs(known)
        held_out = first if validation is None else _outputs(validation)
        rows = Rows(first, self)
        return rows, rows if held_out is first else Rows(held_out, self)

    def _check_scores(self, scores: Any, n: int) -> None:
        """Raise unless a user's `score_rows` returned one number per row, as a tensor."""
        if isinstance(scores, Tensor) and scores.shape == (n,) and not scores.is_complex():
            return
        got = f"shape {list(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
        if isinstance(scores, Tensor) and scores.is_complex():
            got = "complex numbers"
        raise InvalidDataError(
            f"Expected a tensor of {n} scores from score_rows of {self.title}, got {got}. Return "
            f"a torch tensor with one number per row."
        )

    def _check_fitted(self) -> None:
        if self._learns() and not self.state():
            raise InvalidDataError(f"{self.title} is not fitted yet; call fit(known) first.")

    def _check_labels(self, known: Rows, held_out: Rows) -> None:
        """Raise if labels are missing in the part that the method is fitted on."""
        is_of_known = Needs.KNOWN in self.all_needs or Needs.VALIDATION not in self.all_needs
        part = known if is_of_known else held_out
        if Needs.LABELS in self.all_needs and part.outputs.labels is None:
            raise _missing_labels(self, "outputs" if part is known else "validation outputs")

    def _learns(self) -> bool:
        kind = type(self)
        return (
            kind.fit_statistics is not Method.fit_statistics or kind.finalize is not Method.finalize
        )

    def _remember_widths(self, known: ClassifierOutputs) -> None:
        if self._learns():
            self.fitted_widths_ = self._widths(known)

    def _check_widths(self, outputs: ClassifierOutputs) -> None:
        """Raise for outputs of another network than the one the method was fitted on."""
        fitted: Mapping[str, int] = getattr(self, "fitted_widths_", {})
        for name, width in self._widths(outputs).items():
            if fitted.get(name, width) != width:
                raise InvalidDataError(
                    f"{self.title} was fitted on {name} with {fitted[name]} columns, got {name} "
                    f"with {width}. Score outputs of the network it was fitted on."
                )

    def _widths(self, outputs: ClassifierOutputs) -> dict[str, int]:
        """Count the columns of each table that the method reads."""
        tables = {
            "logits": (Needs.LOGITS, outputs.logits),
            "features": (Needs.FEATURES, outputs.features),
        }
        for name, layer in (outputs.layers or {}).items():
            tables[f"layer {name!r}"] = (_need_of_layer(name), layer)
        needs = self.all_needs.value
        return {
            name: table.shape[1]
            for name, (need, table) in tables.items()
            if table is not None and need.value & needs
        }


def _outputs(rows: ClassifierOutputs | Rows) -> ClassifierOutputs:
    return rows.outputs if isinstance(rows, Rows) else rows


def _missing(method: Method, what: str) -> InvalidDataError:
    return InvalidDataError(
        f"{method.title} needs {what}, but the outputs have none; extract them with a model that "
        f"has them, or choose a method on logits such as energy."
    )


def _missing_labels(method: Method, where: str) -> InvalidDataError:
    return InvalidDataError(
        f"{method.title} needs labels, but the {where} have none; pass the classes of those "
        f"images, or choose a method without labels such as energy."
    )


def _missing_extra(method: Method, extra: ExtraOutput) -> InvalidDataError:
    return InvalidDataError(
        f"{method.title} needs the extra output {extra.key}, but the outputs do not hold it; "
        f"extract them with extra_outputs=method.extra_outputs()."
    )


def _need_of_layer(name: str) -> Needs:
    """Return the needs for which a method reads a layer of this name."""
    of_boxes = {"latent/": Needs.LATENT, "shortcut/": Needs.SHORTCUTS}
    named = (need for start, need in of_boxes.items() if name.startswith(start))
    return Needs.LAYERS | next(named, Needs(0))


def _named(outputs: ClassifierOutputs, start: str) -> list[Tensor] | None:
    """Return the layers whose names have this prefix, or None."""
    return [t for name, t in (outputs.layers or {}).items() if name.startswith(start)] or None


class Family(StrEnum):
    """What a method looks at, in the words of FindMeIfYouCan, section 5.2.

    OUTPUT: the logits. FEATURE: the vector before the head. MIXED: that vector together with the
    logits or the head. LATENT: layers before it.
    """

    OUTPUT = "output-based"
    FEATURE = "feature-space"
    MIXED = "mixed"
    LATENT = "latent-space"


def family_of(method: Method) -> Family:
    """Return the family of a method by what it and the method it wraps need.

    >>> from incognita.methods import load_method
    >>> [str(family_of(load_method(name))) for name in ("energy", "knn", "vim", "lard")]
    ['output-based', 'feature-space', 'mixed', 'latent-space']
    """
    needs = method.all_needs
    is_of_layers = any(e.min_layers and not e.of_boxes for e in method.extra_outputs())
    if needs & _POOLED or is_of_layers:
        return Family.LATENT
    if not needs & (Needs.FEATURES | Needs.HEAD):
        return Family.OUTPUT
    return Family.MIXED if needs & (Needs.LOGITS | Needs.HEAD) else Family.FEATURE
