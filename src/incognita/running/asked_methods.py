"""Which methods to run: from what people type to methods that this model can feed."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from incognita.containers.needs import Needs, Numerators, Probe
from incognita.errors import InvalidDataError
from incognita.methods import list_methods, load_method
from incognita.methods.method import Method

_LAYER_PROBES = ("GramRows", "RankOneRemoved")


@dataclass(frozen=True)
class Asked:
    """The methods to run by name, and why the others of `all` are not."""

    methods: Mapping[str, Method]
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class Offer:
    """What a model and a benchmark can give to methods."""

    has_head: bool = True
    has_layers: bool = True
    has_numerators: bool = False
    has_members: bool = False
    has_train: bool = True
    has_labels: bool = True
    head_reason: str | None = None

    def lacks(self, method: Method) -> str | None:
        """Say what a method needs that is not there, or None."""
        needs = method.all_needs
        checks = (
            (Needs.MEMBERS, self.has_members, "several networks (give --model more than once)"),
            (Needs.FEATURES | Needs.HEAD, self.has_head, self.head_reason or "a linear head"),
            (Needs.LAYERS, self.has_layers, "maps of inner layers"),
            (Needs.KNOWN, self.has_train, "known training images"),
            (Needs.LABELS, self.has_labels, "the classes of the training images"),
        )
        for flag, is_there, what in checks:
            if needs & flag and not is_there:
                return what
        return next((lack for p in method.probes() if (lack := self._lacks_probe(p))), None)

    def _lacks_probe(self, probe: Probe) -> str | None:
        is_numerator = getattr(probe, "objective", "") == "numerator"
        if (isinstance(probe, Numerators) or is_numerator) and not self.has_numerators:
            return "a network whose logits are a quotient (wrap it with numerator=…)"
        if type(probe).__name__ in _LAYER_PROBES and not self.has_layers:
            return "maps of inner layers"
        return None


def ask(methods: str | Sequence[str | Method] | Mapping[str, Method], offer: Offer) -> Asked:
    """Make the methods that were asked for.

    `all` means every registered method the model can feed; the others are reported with the
    reason. A method named one by one that cannot run is an error.
    """
    if isinstance(methods, str) and methods.strip() == "all":
        made = {name: load_method(name) for name in list_methods()}
        lacking = {name: why for name, m in made.items() if (why := offer.lacks(m))}
        skipped = {name: f"needs {why}" for name, why in lacking.items()}
        return Asked({n: m for n, m in made.items() if n not in skipped}, skipped)
    named = dict(_named(methods))
    if not named:
        raise InvalidDataError("No method was named; name one, or all.")
    for name, method in named.items():
        if why := offer.lacks(method):
            raise InvalidDataError(
                f"{name} needs {why}, which is not there. These still work: "
                f"{', '.join(ask('all', offer).methods)}."
            )
    return Asked(named, {})


def _named(
    methods: str | Sequence[str | Method] | Mapping[str, Method],
) -> Iterator[tuple[str, Method]]:
    if isinstance(methods, Mapping):
        yield from methods.items()
        return
    given = split_names(methods) if isinstance(methods, str) else methods
    seen = set()
    for each in given:
        name = each if isinstance(each, str) else each.title.lower()
        if name in seen:
            raise InvalidDataError(f"{name} was asked for twice; name each method once.")
        seen.add(name)
        yield name, (make(each) if isinstance(each, str) else each)


def split_names(text: str) -> list[str]:
    """Cut a list at its commas, but not inside brackets.

    >>> split_names("msp, knn(k=10), oodl(nu=0.1, kernel='rbf')")
    ['msp', 'knn(k=10)', "oodl(nu=0.1, kernel='rbf')"]
    """
    parts = re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def make(text: str) -> Method:
    """Make a method from its name, with parameters in brackets where some are given.

    >>> make("knn(k=10)").k
    10
    """
    match = re.fullmatch(r"([\w+-]+)(?:\((.*)\))?", text.strip(), re.DOTALL)
    if match is None:
        raise InvalidDataError(
            f"{text!r} is not the name of a method; write msp, react+knn or knn(k=10)."
        )
    method: Method = load_method(match[1], **_parameters(match[2] or ""))
    return method


def _parameters(text: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("a parameter is written name=value")
        return {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise InvalidDataError(
            f"({text}) are no parameters: {error}; write them as (k=10, name='text')."
        ) from None
