"""Which methods to run: from what people type to methods that this model can feed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from incognita.calls import parse_call, split_calls
from incognita.containers.needs import ExtraOutput, Needs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import GramRows, LogitsWithoutTopDirection, Numerators
from incognita.methods import list_methods, load_method
from incognita.methods.method import Method
from incognita.methods.parse import build_chain
from incognita.results.method_result import TUNED

Methods = str | Method | Sequence[str | Method] | Mapping[str, Method]

_EXAMPLE = "msp, react+knn or knn(k=10)"
_HOW_TO_GIVE = "give all, names such as 'msp, react+knn', methods, or a mapping of names to methods"
_MAPPING = "give a mapping of names to methods, such as {'first': …, 'second': …}"


@dataclass(frozen=True)
class SelectedMethods:
    """The methods to run by name, and why the others of `all` are not."""

    methods: Mapping[str, Method]
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class Capabilities:
    """What a model and a benchmark can give to methods.

    Args:
        has_head: Whether a linear layer between features and logits was found.
        has_features: Whether there is a feature vector of each row.
        head_reason: A sentence that says why not, where it was not.
        n_layers: Of how many inner layers maps can be recorded.
        has_numerators: Whether the logits are a quotient with a numerator.
        has_members: Whether there are several networks.
        is_of_boxes: Whether rows are boxes of a detector, of which input steps and changed maps
            are not recorded.
        has_train: Whether there are known training images.
        has_train_labels: Whether their classes are known.
        has_validation: Whether there are known validation images.
        has_validation_labels: Whether their classes are known.
        has_latent: Whether an inner layer is pooled over boxes.
        has_shortcuts: Whether shortcut layers are.
    """

    has_head: bool = True
    has_features: bool = True
    head_reason: str | None = None
    n_layers: int = 2
    has_numerators: bool = False
    has_members: bool = False
    is_of_boxes: bool = False
    has_train: bool = True
    has_train_labels: bool = True
    has_validation: bool = True
    has_validation_labels: bool = True
    has_latent: bool = False
    has_shortcuts: bool = False

    def missing_for(self, method: Method) -> str | None:
        """Say what a method needs that is not there, or None."""
        needs = method.all_needs
        has_images = self.has_train or self.has_validation
        checks = (
            (Needs.MEMBERS, self.has_members, self._members_in_words()),
            (Needs.FEATURES, self.has_features, self._head_in_words()),
            (Needs.HEAD, self.has_head, self._head_in_words()),
            (Needs.LAYERS, self.n_layers >= 1, _layers_in_words(1)),
            (Needs.LATENT, self.has_latent, "a latent layer pooled over boxes (a detector)"),
            (Needs.SHORTCUTS, self.has_shortcuts, "shortcut layers pooled over boxes (a detector)"),
            (Needs.KNOWN, self.has_train, "known training images"),
            (Needs.VALIDATION, has_images, "known validation or training images"),
            (Needs.LABELS, *self._labels_for(needs)),
        )
        for flag, is_there, what in checks:
            if needs & flag and not is_there:
                return what
        return next((lack for p in method.extra_outputs() if (lack := self._lacks_probe(p))), None)

    def _members_in_words(self) -> str:
        if self.is_of_boxes:
            return "several networks on the same rows, which boxes of several detectors are not"
        return "several networks (give --model more than once)"

    def _head_in_words(self) -> str:
        return f"a linear head ({self.head_reason})" if self.head_reason else "a linear head"

    def _labels_for(self, needs: Needs) -> tuple[bool, str]:
        """Whether there are the labels a method learns from, and what they are called."""
        if Needs.KNOWN in needs or Needs.VALIDATION not in needs or not self.has_validation:
            return self.has_train_labels, "the classes of the training images"
        return self.has_validation_labels, "the classes of the validation images"

    def _lacks_probe(self, extra: ExtraOutput) -> str | None:
        if self.is_of_boxes:
            what = "back to the input" if extra.backwards else "with changed maps"
            return f"a pass of its own {what}, which is made of images, not of boxes"
        is_numerator = getattr(extra, "objective", "") == "numerator"
        if (isinstance(extra, Numerators) or is_numerator) and not self.has_numerators:
            return "a network whose logits are a quotient (wrap it with numerator=…)"
        wanted = (
            2 if isinstance(extra, LogitsWithoutTopDirection) else int(isinstance(extra, GramRows))
        )
        return _layers_in_words(wanted) if self.n_layers < wanted else None


def _layers_in_words(n: int) -> str:
    return "maps of an inner layer" if n == 1 else f"maps of {n} inner layers"


def select_methods(methods: Methods, offer: Capabilities) -> SelectedMethods:
    """Make the methods that were asked for.

    `all` means every registered method the model can feed; the others are reported with the
    reason. A method named one by one that cannot run is an error.
    """
    given = _given(methods)
    if given == ["all"]:
        made = {name: load_method(name) for name in list_methods()}
        lacking = {name: why for name, m in made.items() if (why := offer.missing_for(m))}
        skipped = {name: f"needs {why}" for name, why in lacking.items()}
        return SelectedMethods({n: m for n, m in made.items() if n not in skipped}, skipped)
    named = dict(_named(given))
    if not named:
        raise InvalidDataError("No method was named; name one, or all.")
    for name, method in named.items():
        if why := offer.missing_for(method):
            raise InvalidDataError(
                f"{name} needs {why}; there is none here. These still work: "
                f"{', '.join(select_methods('all', offer).methods)}."
            )
    return SelectedMethods(named, {})


def _given(methods: Methods) -> list[Any] | Mapping[str, Any]:
    """Give what came as a list or as a mapping."""
    if isinstance(methods, str):
        return [name for name in split_calls(methods) if name]
    if isinstance(methods, Mapping):
        return methods
    if isinstance(methods, Sequence):
        return [each.strip() if isinstance(each, str) else each for each in methods]
    return [methods]


def _named(given: list[Any] | Mapping[str, Any]) -> Iterator[tuple[str, Method]]:
    if isinstance(given, Mapping):
        for name, method in given.items():
            yield _checked_title(name), _checked(method)
        return
    if "all" in [each for each in given if isinstance(each, str)]:
        raise InvalidDataError("all was named beside others; write all alone, or names.")
    seen = set()
    for each in given:
        method = parse_method(each) if isinstance(each, str) else _checked(each)
        name = each if isinstance(each, str) else _checked_title(method.title.lower())
        if name in seen:
            way = "name each method once" if isinstance(each, str) else _MAPPING
            raise InvalidDataError(f"{name} was asked for twice; {way}.")
        seen.add(name)
        yield name, method


def _checked(method: Any) -> Method:
    if isinstance(method, Method):
        return method
    if isinstance(method, type):
        raise InvalidDataError(
            f"{method.__name__} is a class, but a method is an instance of one; "
            f"write {method.__name__}()."
        )
    raise InvalidDataError(f"A {type(method).__name__} is no method; {_HOW_TO_GIVE}.")


def _checked_title(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidDataError(f"A method is named by text, but {name!r:.80} came.")
    if name.endswith(TUNED):
        raise InvalidDataError(
            f"{name!r} ends in {TUNED!r}, which marks a method whose parameters were searched; "
            f"choose another name."
        )
    return name


def parse_method(text: str) -> Method:
    """Make a method from its name, with parameters in brackets where some are given.

    >>> parse_method("knn(k=10)").k
    10
    >>> parse_method("react(percentile=95)+knn(k=10)").scorer.k
    10
    """
    calls = [parse_call(part, kind="method", example=_EXAMPLE) for part in split_calls(text, "+")]
    if extra := next((call for call in calls if call.arguments), None):
        raise InvalidDataError(
            f"Expected parameters of {extra.name} by name, got {extra.arguments[0]!r:.80}. "
            f"Write {_EXAMPLE}."
        )
    return build_chain([(c.name, c.parameters if c.has_brackets else None) for c in calls])
