"""Selects the methods to run: from what people type to methods this model can provide for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from incognita.benchmarks.benchmark import Benchmark
from incognita.calls import split_calls
from incognita.containers.needs import Needs
from incognita.errors import InvalidDataError
from incognita.methods import METHODS, list_methods, load_method
from incognita.methods.method import Method
from incognita.methods.parse import parse_method
from incognita.results.method_result import TUNED

Methods = str | Method | Sequence[str | Method] | Mapping[str, Method]

_HOW_TO_GIVE = "Give all, names such as 'msp, react+knn', methods, or a mapping of names to methods"
_MAPPING = "Give a mapping of names to methods, such as {'first': …, 'second': …}"


@dataclass(frozen=True)
class SelectedMethods:
    """The methods to run by name, and why other registered methods cannot."""

    methods: Mapping[str, Method]
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class Capabilities:
    """What a model and a benchmark provide to methods.

    Args:
        available: What is there; KNOWN and VALIDATION for the data sets themselves.
        labeled: Which of `train` and `validation` have true classes.
        head_reason: Why there is no linear head, if there is none.
        n_layers: Number of inner layers whose maps can be recorded.
        has_numerator: Whether the logits are a quotient with a numerator (GODIN).
        rows_are_boxes: Whether rows are boxes of a detector.
        is_recorded: Whether outputs come from files, so that no network can be run.
        unstored: Returns which outputs a method needs that are not stored, where only the store
            can give them.
    """

    available: Needs = ~(Needs.MEMBERS | Needs.LATENT | Needs.SHORTCUTS)
    labeled: frozenset[str] = frozenset({"train", "validation"})
    head_reason: str | None = None
    n_layers: int = 2
    has_numerator: bool = False
    rows_are_boxes: bool = False
    is_recorded: bool = False
    unstored: Callable[[Method], str | None] | None = None

    @classmethod
    def of_benchmark(
        cls, available: Needs, benchmark: Benchmark, *, rows_are_boxes: bool = False, **more: Any
    ) -> "Capabilities":
        """Add what a benchmark provides to what a model does."""
        sets = {"train": benchmark.train, "validation": benchmark.validation}
        flags = {"train": Needs.KNOWN, "validation": Needs.VALIDATION}
        present = {name: dataset for name, dataset in sets.items() if dataset is not None}
        for name in present:
            available |= flags[name]
        labeled = frozenset(
            name
            for name, dataset in present.items()
            # boxes always have a class: the predicted one, or that of the object they match
            if rows_are_boxes or dataset.labels is not None
        )
        return cls(available | Needs.LABELS, labeled, rows_are_boxes=rows_are_boxes, **more)

    def missing_for(self, method: Method) -> str | None:
        """Return what a method needs and is not available, or None."""
        needs = method.all_needs
        for flag, words in self._in_words().items():
            if needs & flag and not self._has(flag):
                return words
        if self.unstored is not None and (unstored := self.unstored(method)):
            return unstored
        if needs & Needs.LABELS and (missing := self._missing_labels(needs)):
            return missing
        if self.is_recorded and method.extra_outputs():
            return "the network: input gradients and layer maps are not in the files"
        reasons = (
            extra.missing_for(
                n_layers=self.n_layers,
                has_numerator=self.has_numerator,
                rows_are_boxes=self.rows_are_boxes,
            )
            for extra in method.extra_outputs()
        )
        return next((why for why in reasons if why is not None), None)

    def _has(self, flag: Needs) -> bool:
        if flag is Needs.LAYERS:
            return self.n_layers > 0
        # without validation images, methods take training images instead
        flags = Needs.VALIDATION | Needs.KNOWN if flag is Needs.VALIDATION else flag
        return bool(self.available & flags)

    def _in_words(self) -> dict[Needs, str]:
        head = f"a linear head ({self.head_reason})" if self.head_reason else "a linear head"
        members = (
            "several networks on the same rows, which boxes of several detectors are not"
            if self.rows_are_boxes
            else "several networks (give --model more than once)"
        )
        return {
            Needs.LOGITS: "class logits (no file has them)",
            Needs.MEMBERS: members,
            Needs.FEATURES: "features (no file has them)" if self.is_recorded else head,
            Needs.HEAD: head,
            Needs.LAYERS: "maps of an inner layer",
            Needs.LATENT: "a latent layer pooled over boxes (a detector)",
            Needs.SHORTCUTS: "shortcut layers pooled over boxes (a detector)",
            Needs.KNOWN: "known training images",
            Needs.VALIDATION: "known validation or training images",
        }

    def _missing_labels(self, needs: Needs) -> str | None:
        is_on_train = Needs.KNOWN in needs or Needs.VALIDATION not in needs
        if is_on_train or not self.available & Needs.VALIDATION:
            return None if "train" in self.labeled else "the classes of the training images"
        return None if "validation" in self.labeled else "the classes of the validation images"


def select_methods(methods: Methods, capabilities: Capabilities) -> SelectedMethods:
    """Build the selected methods.

    `all` selects every registered method the model can provide for; the others are skipped with
    the reason. A method that is named and cannot run is an error.
    """
    given = _as_collection(methods)
    if given == ["all"]:
        return _select_all(capabilities)
    named = dict(_named(given))
    if not named:
        raise InvalidDataError("Expected at least one method, got none. Name one, or write all.")
    for name, method in named.items():
        if why := capabilities.missing_for(method):
            others = ", ".join(select_methods("all", capabilities).methods)
            raise InvalidDataError(f"{name} needs {why}. These methods can run here: {others}.")
    return SelectedMethods(named, {})


def _select_all(capabilities: Capabilities) -> SelectedMethods:
    """Select every method that can run; a plug-in that cannot be imported is skipped, too."""
    selected: dict[str, Method] = {}
    skipped = {}
    for name in list_methods():
        try:
            method = load_method(name)
        except InvalidDataError as error:
            if name in METHODS.homes:
                raise
            skipped[name] = str(error)
            continue
        if why := capabilities.missing_for(method):
            skipped[name] = f"needs {why}"
        else:
            selected[name] = method
    return SelectedMethods(selected, skipped)


def _as_collection(methods: Methods) -> list[Any] | Mapping[str, Any]:
    if isinstance(methods, str):
        return [name for name in split_calls(methods) if name]
    if isinstance(methods, Mapping):
        return methods
    if isinstance(methods, Sequence):
        return [method.strip() if isinstance(method, str) else method for method in methods]
    return [methods]


def _named(given: list[Any] | Mapping[str, Any]) -> Iterator[tuple[str, Method]]:
    if isinstance(given, Mapping):
        for name, method in given.items():
            is_name = isinstance(method, str)
            yield _check_title(name), parse_method(method) if is_name else _check_method(method)
        return
    if "all" in [name for name in given if isinstance(name, str)]:
        raise InvalidDataError('"all" cannot be combined with names. Write all, or the names.')
    seen = set()
    for item in given:
        method = parse_method(item) if isinstance(item, str) else _check_method(item)
        name = item if isinstance(item, str) else _check_title(method.title.lower())
        if name in seen:
            way = "Name each method once" if isinstance(item, str) else _MAPPING
            raise InvalidDataError(f"{name} is given twice. {way}.")
        seen.add(name)
        yield name, method


def _check_method(method: Any) -> Method:
    if isinstance(method, Method):
        return method
    if isinstance(method, type):
        raise InvalidDataError(
            f"Expected a method, got the class {method.__name__}. Write {method.__name__}()."
        )
    raise InvalidDataError(
        f"Expected a method or its name, got {type(method).__name__}. {_HOW_TO_GIVE}."
    )


def _check_title(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidDataError(f"Expected the name of a method as text, got {name!r:.80}.")
    if name.endswith(TUNED):
        raise InvalidDataError(
            f"{name!r} ends in {TUNED!r}, which marks a method with searched parameters. Choose "
            f"another name."
        )
    return name
