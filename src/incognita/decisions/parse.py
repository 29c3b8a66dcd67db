"""Which threshold policy: from what people type to the policy, tau and t* kept apart."""

import ast
import re
from dataclasses import MISSING, dataclass, fields
from typing import Any

from incognita.decisions import CONFIDENCE_POLICIES, SCORE_POLICIES
from incognita.decisions.thresholds import ConfidencePolicy, Policy, ScorePolicy
from incognita.errors import InvalidDataError, unknown_name
from incognita.methods.parameter_types import check_types
from incognita.registry import Registry


@dataclass(frozen=True)
class _Kind:
    """One of the two kinds of policies, and the words to tell it from the other."""

    registry: Registry
    sets: str
    example: str


_SCORE = _Kind(
    SCORE_POLICIES,
    "tau, the threshold on the unknown score that says which boxes are unknown",
    "quantile(share=0.99)",
)
_CONFIDENCE = _Kind(
    CONFIDENCE_POLICIES,
    "t*, the threshold on the detector's confidence that says which boxes are kept",
    "lrp(tau=0.5)",
)


def score_policy(policy: str | int | float | Policy) -> ScorePolicy:
    """Give the policy for tau that was asked for; a number is a fixed threshold.

    >>> score_policy("quantile(share=0.99)"), score_policy("12.5")
    (KnownQuantile(share=0.99), Fixed(value=12.5))
    >>> score_policy("quantil")
    Traceback (most recent call last):
    incognita.errors.UnknownNameError: No score policy is called 'quantil'. Did you mean quantile?
    """
    if isinstance(policy, ScorePolicy):
        return policy
    read: ScorePolicy = _read(policy, _SCORE, _CONFIDENCE)
    return read


def confidence_policy(policy: str | int | float | Policy) -> ConfidencePolicy:
    """Give the policy for t* that was asked for; a number is a fixed threshold.

    >>> confidence_policy("f1"), confidence_policy("fixed(0.5)")
    (F1Optimal(), FixedConfidence(value=0.5))
    """
    if isinstance(policy, ConfidencePolicy):
        return policy
    read: ConfidencePolicy = _read(policy, _CONFIDENCE, _SCORE)
    return read


def _read(policy: Any, kind: _Kind, other: _Kind) -> Any:
    """Make the policy of one kind; one of the other kind is refused in words."""
    if isinstance(policy, Policy):
        raise _wrong_kind(str(policy), kind, other)
    if isinstance(policy, bool) or not isinstance(policy, str | int | float):
        raise InvalidDataError(
            f"A {kind.registry.kind} is a name or a number, such as {kind.example} or 0.5, "
            f"but {policy!r:.80} came."
        )
    if (number := _number(policy)) is not None:
        return kind.registry.get("fixed")(number)
    name, brackets = _cut(str(policy), kind)
    if name in other.registry.homes and name not in kind.registry.homes:
        raise _wrong_kind(name, kind, other)
    made = kind.registry.get(name)
    return made(**_parameters(name, made, brackets))


def _wrong_kind(name: str, kind: _Kind, other: _Kind) -> InvalidDataError:
    return InvalidDataError(
        f"{name} sets {other.sets}, but here a policy is wanted for {kind.sets}; "
        f"choose one of: {', '.join(kind.registry.names())}."
    )


def _number(policy: str | int | float) -> float | None:
    """Give the number that came, or None where it is a name."""
    try:
        return _as_float(policy)
    except ValueError:
        return None


def _as_float(value: str | int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats; the policy refuses infinity
        return float("inf")


def _cut(text: str, kind: _Kind) -> tuple[str, str]:
    """Cut what was typed into the name and what stands in the brackets behind it."""
    found = re.fullmatch(r"([\w-]+)\s*(?:\((.*)\))?", text.strip(), re.DOTALL)
    if found is None:
        raise InvalidDataError(
            f"{text!r:.80} is no {kind.registry.kind}; write a name or a number, "
            f"such as {kind.example} or 0.5."
        )
    return found[1], found[2] or ""


def _parameters(name: str, made: Any, brackets: str) -> dict[str, float]:
    """Give the parameters by name; one without a name is the first that has none yet."""
    own = fields(made)
    positional, named = _literals(name, brackets)
    if len(positional) > len(own):
        raise InvalidDataError(
            f"{name} has {len(own)} parameters, but {len(positional)} values came."
        )
    values = dict(zip([each.name for each in own], positional, strict=False))
    for parameter, value in named:
        if parameter not in [each.name for each in own]:
            raise unknown_name(f"parameter of {name}", parameter, [each.name for each in own])
        if parameter in values:
            raise InvalidDataError(f"{parameter} of {name} is given twice; give it once.")
        values[parameter] = value
    for each in own:
        if each.default is MISSING and each.name not in values:
            raise InvalidDataError(f"{name} needs a {each.name}; write {name}(0.5), or 0.5 alone.")
    check_types(name, made, values)
    return {parameter: _as_float(value) for parameter, value in values.items()}


def _literals(name: str, brackets: str) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Read the values in the brackets; nothing in them is run."""
    try:
        call = ast.parse(f"f({brackets})", mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError("there is more than one pair of brackets")
        if any(each.arg is None for each in call.keywords):
            raise ValueError("a parameter is written name=value")
        positional = [ast.literal_eval(each) for each in call.args]
        named = [(str(each.arg), ast.literal_eval(each.value)) for each in call.keywords]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise InvalidDataError(
            f"({brackets:.80}) are no parameters of {name}: {reason}; write them as (name=0.5)."
        ) from None
    return positional, named
