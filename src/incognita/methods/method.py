"""The contract of a method: outputs of a model in, one unknown score per row out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from enum import Enum, StrEnum
from typing import Any, ClassVar

from torch import Tensor

from incognita.containers.needs import ExtraOutput, Needs
from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError, unknown_name
from incognita.extraction.extra_outputs import GramRows, LogitsWithoutTopDirection, MahalanobisStep
from incognita.shapes import Float


class Refit(Enum):
    """What a change of a parameter makes a method do again.

    LEARN: everything. SETTLE: only the cheap part that follows from what was learned. A parameter
    that is not listed acts when scoring, and nothing is fitted again.
    """

    STATISTICS = "learn"
    FINALIZE = "settle"


@dataclass(eq=False)
class Method(ABC):
    """One post-hoc method. A subclass is a dataclass whose fields are its parameters.

    Learned state is set on the instance under names that end in an underscore: tensors, floats, or
    another method. `fit` runs `fit_statistics`, which costs time and depends on few parameters,
    then `finalize`, which is cheap and may depend on more; a search repeats only what a parameter
    `invalidates`.
    """

    needs: ClassVar[Needs] = Needs.LOGITS
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    invalidates: ClassVar[Mapping[str, Refit]] = {}
    # which of "known" and "validation" must carry the probes for `fit`; scoring always needs them
    fits_on_probes_of: ClassVar[tuple[str, ...]] = ()

    def fit(
        self, known: ClassifierOutputs, validation: ClassifierOutputs | None = None
    ) -> "Method":
        """Learn from outputs of the known training set (and of known validation data)."""
        held_out = known if validation is None else validation
        self.check(known, is_fitting=True)
        self._check_labels(known, held_out)
        self.fit_statistics(known, held_out)
        self.finalize(known, held_out)
        self._remember_widths(known)
        return self

    def fit_statistics(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        """Set the state that costs time; a method that learns nothing has none."""
        return

    def finalize(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        """Set the state that follows cheaply from what was learned and the parameters."""
        return

    @abstractmethod
    def score(self, outputs: ClassifierOutputs) -> Float[Tensor, "n"]:
        """Give one float64 number per row; higher means more unknown."""

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        """What the pass must record for `score`; some methods know it only once fitted."""
        return ()

    def extra_outputs_to_fit(self, part: str) -> tuple[ExtraOutput, ...]:
        """What the pass must record of the `known` or the `validation` part for `fit`."""
        return self.extra_outputs() if part in self.fits_on_probes_of else ()

    def check(self, outputs: ClassifierOutputs, *, is_fitting: bool = False) -> None:
        """Refuse outputs that lack what this method needs, naming what is missing."""
        asked = {
            "features": (Needs.FEATURES, outputs.features),
            "a linear head": (Needs.HEAD, outputs.head),
            "pooled layer features": (Needs.LAYERS, outputs.layers or None),
            "a latent layer pooled over boxes": (Needs.LATENT, _named(outputs, "latent/")),
            "shortcut layers pooled over boxes": (Needs.SHORTCUTS, _named(outputs, "shortcut/")),
        }
        if is_fitting and self.all_needs & Needs.KNOWN and not len(outputs):
            raise InvalidDataError(f"{self.title} learns from known outputs, but none came.")
        for what, (need, column) in asked.items():
            if need in self.all_needs and column is None:
                raise InvalidDataError(
                    f"{self.title} needs {what}, but the outputs have none; extract them with a "
                    f"model that has them, or choose a method on logits such as energy."
                )
        if not is_fitting:
            self._check_fitted()
            self._check_widths(outputs)
            for extra in self.extra_outputs():
                if not any(
                    name.startswith(f"{extra.key}/") for name in outputs.extra_outputs or ()
                ):
                    raise InvalidDataError(
                        f"{self.title} needs the probe {extra.key}, but the outputs do not hold "
                        f"it; extract them with extra_outputs=method.extra_outputs()."
                    )

    @property
    def all_needs(self) -> Needs:
        """What this method needs, together with the method it hands over to."""
        scorer = getattr(self, "scorer", None)
        return self.needs | scorer.all_needs if isinstance(scorer, Method) else self.needs

    @property
    def title(self) -> str:
        """The name people know the method by."""
        return type(self).__name__

    def parameters(self) -> dict[str, Any]:
        """Give the parameters and their values, without the method it hands over to."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if not isinstance(value, Method)}

    def state(self) -> dict[str, Any]:
        """Give what was learned, by attribute name."""
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def with_parameters(
        self,
        known: ClassifierOutputs,
        validation: ClassifierOutputs | None = None,
        **changes: Any,
    ) -> "Method":
        """Give a fitted copy with other parameters; only what they invalidate is fitted again."""
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
        held_out = known if validation is None else validation
        if Refit.STATISTICS in refits:
            other.fit_statistics(known, held_out)
        if refits:
            other.finalize(known, held_out)
            other._remember_widths(known)
        return other

    def _check_fitted(self) -> None:
        if self._learns() and not self.state():
            raise InvalidDataError(f"{self.title} is not fitted yet; call fit(known) first.")

    def _check_labels(self, known: ClassifierOutputs, held_out: ClassifierOutputs) -> None:
        """Refuse outputs without classes; who learns from held-out ones alone needs theirs."""
        is_of_known = Needs.KNOWN in self.all_needs or Needs.VALIDATION not in self.all_needs
        part = known if is_of_known else held_out
        if Needs.LABELS in self.all_needs and part.labels is None:
            whose = "outputs" if part is known else "validation outputs"
            raise InvalidDataError(
                f"{self.title} needs labels, but the {whose} have none; give the classes of those "
                f"images, or choose a method without labels such as energy."
            )

    def _learns(self) -> bool:
        kind = type(self)
        return (
            kind.fit_statistics is not Method.fit_statistics or kind.finalize is not Method.finalize
        )

    def _remember_widths(self, known: ClassifierOutputs) -> None:
        if self._learns():
            self.fitted_widths_ = self._widths(known)

    def _check_widths(self, outputs: ClassifierOutputs) -> None:
        """Refuse outputs of another network than the one the method was fitted on."""
        fitted: Mapping[str, int] = getattr(self, "fitted_widths_", {})
        for name, width in self._widths(outputs).items():
            if fitted.get(name, width) != width:
                raise InvalidDataError(
                    f"{self.title} was fitted on {name} with {fitted[name]} columns, but {name} "
                    f"with {width} came; score outputs of the network it was fitted on."
                )

    def _widths(self, outputs: ClassifierOutputs) -> dict[str, int]:
        """Give the number of columns of each table that the method looks at."""
        tables = {
            "logits": (Needs.LOGITS, outputs.logits),
            "features": (Needs.FEATURES, outputs.features),
        }
        for name, layer in (outputs.layers or {}).items():
            tables[f"layer {name!r}"] = (_need_of_layer(name), layer)
        return {
            name: table.shape[1]
            for name, (need, table) in tables.items()
            if need & self.all_needs and table is not None
        }


def _need_of_layer(name: str) -> Needs:
    """Give the needs that make a method look at a layer."""
    of_boxes = {"latent/": Needs.LATENT, "shortcut/": Needs.SHORTCUTS}
    named = (need for start, need in of_boxes.items() if name.startswith(start))
    return Needs.LAYERS | next(named, Needs(0))


def _named(outputs: ClassifierOutputs, start: str) -> list[Tensor] | None:
    """Give the layers whose names begin so, or None."""
    return [t for name, t in (outputs.layers or {}).items() if name.startswith(start)] or None


_INNER = Needs.LAYERS | Needs.LATENT | Needs.SHORTCUTS
_PROBES_OF_LAYERS = (GramRows, MahalanobisStep, LogitsWithoutTopDirection)


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
    """Tell the family of a method by what it needs; one that hands over needs both.

    >>> from incognita.methods import load_method
    >>> [str(family_of(load_method(name))) for name in ("energy", "knn", "vim", "lard")]
    ['output-based', 'feature-space', 'mixed', 'latent-space']
    """
    needs = method.all_needs
    if needs & _INNER or any(
        isinstance(extra, _PROBES_OF_LAYERS) for extra in method.extra_outputs()
    ):
        return Family.LATENT
    if not needs & (Needs.FEATURES | Needs.HEAD):
        return Family.OUTPUT
    return Family.MIXED if needs & (Needs.LOGITS | Needs.HEAD) else Family.FEATURE
