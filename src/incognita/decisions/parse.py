"""Builds policies from text: for tau, for t* (kept apart), calibrators, box uncertainties."""

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

from incognita.calls import Call, check_types, parse_call
from incognita.decisions import (
    BOX_UNCERTAINTIES,
    CALIBRATORS,
    CONFIDENCE_POLICIES,
    SCORE_POLICIES,
)
from incognita.decisions.thresholds import ConfidencePolicy, Policy, ScorePolicy
from incognita.errors import InvalidDataError, unknown_name
from incognita.registry import Registry

if TYPE_CHECKING:
    from incognita.decisions.box_uncertainty import BoxUncertainty
    from incognita.decisions.calibrators import Calibrator


@dataclass(frozen=True)
class _Kind:
    """One of the two kinds of policies, and how messages describe it."""

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
    """Return the policy for tau that a text describes; a number is a fixed threshold.

    >>> score_policy("quantile(share=0.99)"), score_policy("12.5")
    (KnownQuantile(share=0.99), Fixed(value=12.5))
    >>> score_policy("quantil")
    Traceback (most recent call last):
    incognita.errors.UnknownNameError: No score policy is called 'quantil'. Did you mean quantile?
    """
    if isinstance(policy, ScorePolicy):
        return policy
    parsed: ScorePolicy = _parse(policy, _SCORE, _CONFIDENCE)
    return parsed


def confidence_policy(policy: str | int | float | Policy) -> ConfidencePolicy:
    """Return the policy for t* that a text describes; a number is a fixed threshold.

    >>> confidence_policy("f1"), confidence_policy("fixed(0.5)")
    (F1Optimal(), FixedConfidence(value=0.5))
    """
    if isinstance(policy, ConfidencePolicy):
        return policy
    parsed: ConfidencePolicy = _parse(policy, _CONFIDENCE, _SCORE)
    return parsed


def calibrator_of(calibrator: "str | Calibrator") -> "Calibrator":
    """Return the calibrator that a text describes.

    >>> calibrator_of("histogram(n_bins=10)")
    Histogram(n_bins=10)
    """
    found: Calibrator = _named(calibrator, CALIBRATORS, "histogram(n_bins=10)")
    return found


def uncertainty_of(uncertainty: "str | BoxUncertainty") -> "BoxUncertainty":
    """Return the uncertainty of a box that a text describes.

    >>> uncertainty_of("dempster-shafer")
    DempsterShafer()
    """
    found: BoxUncertainty = _named(uncertainty, BOX_UNCERTAINTIES, "entropy")
    return found


def _named(policy: Any, registry: Registry, example: str) -> Any:
    if isinstance(policy, Policy):
        return policy
    call = parse_call(str(policy), kind=registry.kind, example=example)
    policy_class = registry.get(call.name)
    return policy_class(**_parameters(call, policy_class))


def _parse(policy: Any, kind: _Kind, other: _Kind) -> Any:
    """Build the policy of one kind; raise for one of the other kind."""
    if isinstance(policy, Policy):
        raise _wrong_kind(str(policy), kind, other)
    if isinstance(policy, bool) or not isinstance(policy, str | int | float):
        raise InvalidDataError(
            f"Expected a {kind.registry.kind} by name or as a number, such as {kind.example} or "
            f"0.5, got {policy!r:.80}."
        )
    if (number := _number(policy)) is not None:
        return kind.registry.get("fixed")(number)
    call = parse_call(str(policy), kind=kind.registry.kind, example=kind.example)
    name = call.name
    if name in other.registry.homes and name not in kind.registry.homes:
        raise _wrong_kind(name, kind, other)
    policy_class = kind.registry.get(name)
    values = _parameters(call, policy_class)
    return policy_class(**{parameter: _as_float(value) for parameter, value in values.items()})


def _wrong_kind(name: str, kind: _Kind, other: _Kind) -> InvalidDataError:
    return InvalidDataError(
        f"Expected a policy for {kind.sets}, got {name}, which sets {other.sets}. "
        f"Choose one of: {', '.join(kind.registry.names())}."
    )


def _number(policy: str | int | float) -> float | None:
    """Return the number, or None where it is a name."""
    try:
        return _as_float(policy)
    except ValueError:
        return None


def _as_float(value: str | int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats; policies reject infinity
        return float("inf")


def _parameters(call: Call, policy: Any) -> dict[str, Any]:
    """Return the parameters by name; values without a name take the first free ones."""
    name, own = call.name, [field.name for field in fields(policy)]
    if len(call.arguments) > len(own):
        raise InvalidDataError(
            f"Expected at most {len(own)} parameters of {name}, got {len(call.arguments)}."
        )
    values = dict(zip(own, call.arguments, strict=False))
    for parameter, value in call.parameters.items():
        if parameter not in own:
            raise unknown_name(f"parameter of {name}", parameter, own)
        if parameter in values:
            raise InvalidDataError(f"{parameter} of {name} is given twice. Give it once.")
        values[parameter] = value
    for field in fields(policy):
        if field.default is MISSING and field.name not in values:
            raise InvalidDataError(f"{name} needs a {field.name}. Write {name}(0.5), or 0.5 alone.")
    check_types(name, policy, values)
    return values
