"""Claims about results: a metric, a limit, and whether what was measured meets it.

Anybody may state them in a small TOML file of criteria:

version = 1
[[claim]]
metric = "unknown_recall"
split = "unknown-only"        # by default all images
at_least = 0.30
confidence = 0.95             # the lower bound of the 95 % interval must reach the limit
[[claim]]
name = "REQ-7"
metric = "laece"
convention = "saod"           # by default the paper's definition
at_most = 0.10
parameters = {tau = 0.1}      # it must have been measured with these
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from incognita.errors import InvalidDataError, UnknownNameError, count
from incognita.metrics.catalog import Direction, get_metric
from incognita.metrics.measure import Interval
from incognita.results.result import Result

LEVEL = 0.95  # of the intervals of results
NO_INTERVAL = Interval(math.nan, math.nan)
TOLERANCE = 1e-12  # 1 - 0.7 is a little more than 0.3, and must still meet 0.3
_UNBOUNDED = ("wilderness_impact", "wilderness_ratio")  # neither counts nor shares


class ClaimVerdict(Enum):
    """Whether a claim holds; undefined where nothing was measured that could decide it."""

    PASS = "pass"
    FAIL = "fail"
    UNDEFINED = "undefined"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A limit that a metric has to meet.

    Args:
        metric: Its name in the catalog.
        split: The images it is of.
        convention: Whose definition.
        at_least: The limit of a metric that is better when higher, as a fraction or a count.
        at_most: The limit of a metric that is better when lower.
        confidence: None compares the value; 0.95 the bound of the 95 % interval on the side of the
            limit, so that chance in the choice of images does not pass a claim.
        parameters: What the result must have been measured with, such as a threshold.
        name: What a reader calls the claim, such as the number of a requirement.

    >>> str(Claim(metric="unknown_recall", at_least=0.3, confidence=0.95))
    'unknown_recall (paper) on all >= 0.3 with 95 % confidence'
    """

    metric: str
    split: str = "all"
    convention: str = "paper"
    at_least: float | int | None = None
    at_most: float | int | None = None
    confidence: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None

    def __post_init__(self) -> None:
        info = get_metric(self.metric)
        wanted, other = "at_least", "at_most"
        if info.direction is Direction.LOWER:
            wanted, other = other, wanted
        if getattr(self, wanted) is None or getattr(self, other) is not None:
            raise InvalidDataError(
                f"Expected {wanted} and not {other} in the claim on {self.metric}, of which "
                f"{info.direction.value}. Write {wanted} = a limit."
            )
        _check_limit(self.metric, self.limit, is_count=info.is_count)
        if self.confidence not in (None, LEVEL):
            raise InvalidDataError(
                f"Expected confidence {LEVEL}, the level of the intervals, got {self.confidence}. "
                f"Write {LEVEL}, or leave it out to compare the value itself."
            )

    @property
    def limit(self) -> float:
        """The limit, whichever side it is on."""
        limit = self.at_most if self.at_least is None else self.at_least
        assert limit is not None
        return float(limit)

    def is_met_by(self, value: float) -> bool:
        """Return whether a number is on the right side of the limit."""
        if self.at_least is None:
            return value <= self.limit + TOLERANCE
        return value >= self.limit - TOLERANCE

    def __str__(self) -> str:
        sign = "<=" if self.at_least is None else ">="
        text = f"{self.metric} ({self.convention}) on {self.split} {sign} {self.limit:g}"
        sure = "" if self.confidence is None else f" with {100 * self.confidence:g} % confidence"
        return (f"{self.name}: " if self.name else "") + text + sure


def _check_limit(metric: str, limit: float, *, is_count: bool) -> None:
    """Raise if no value or every value meets the limit: such a claim says nothing."""
    is_share = not is_count and metric not in _UNBOUNDED
    lowest_is_best = get_metric(metric).direction is Direction.LOWER
    if not math.isfinite(limit) or limit < 0 or (is_share and limit > 1):
        span = "from 0 to 1" if is_share else "of 0 or more"
        raise InvalidDataError(
            f"Expected a limit {span} for {metric}, got {limit:g}. Write 30 % as 0.3."
        )
    if is_share and limit == (1 if lowest_is_best else 0):
        raise InvalidDataError(
            f"Expected a limit that {metric} could miss, got {limit:g}, which every value meets. "
            f"Choose another, or leave the claim out."
        )


def load_claims(path: str | PathLike[str]) -> tuple[Claim, ...]:
    """Load a TOML file of criteria; whatever is wrong with it becomes one sentence."""
    from incognita.formats.toml_files import check_table, load_toml

    content = load_toml(Path(path), "file of criteria")
    _CriteriaFile.check_keys(content, str(path))
    file = check_table(_CriteriaFile, content, str(path))
    keys = [field.name for field in fields(Claim)]
    claims = []
    for place, table in enumerate(file.claim, start=1):
        source = f"{path}: claim {place}"
        _check_numbers(table, source)
        try:
            claims.append(check_table(Claim, table, source, keys=keys))
        except UnknownNameError as error:
            raise UnknownNameError(f"{source}: {error}") from error
    return tuple(claims)


def _check_numbers(table: Mapping[str, Any], source: str) -> None:
    """Raise for true or "0.3", which would be read as 1 and 0.3."""
    for key in ("at_least", "at_most", "confidence"):
        value = table.get(key, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidDataError(f"{source}: Expected a number as {key}, got {value!r:.60}.")


def as_claims(criteria: object) -> tuple[Claim, ...]:
    """Return the claims of a file of criteria, or those given; none for None."""
    if criteria is None:
        return ()
    if isinstance(criteria, str | PathLike):
        return load_claims(criteria)
    given = criteria if isinstance(criteria, Sequence) else [criteria]
    for claim in given:
        if not isinstance(claim, Claim):
            raise InvalidDataError(
                f"Expected a file of criteria or claims, got {claim!r:.80}. Write "
                f"Claim(metric=…, at_least=…)."
            )
    return tuple(given)


@dataclass(frozen=True)
class _CriteriaFile:
    """A file of criteria, whose claims are still tables."""

    version: Literal[1]
    claim: list[dict[str, Any]]

    @staticmethod
    def check_keys(content: Mapping[str, Any], source: str) -> None:
        """Raise unless there is at least one claim: without any, nothing could fail."""
        if content.get("claim") in (None, []):
            raise InvalidDataError(
                f"Expected at least one claim in {source}, got none. Add a table [[claim]]."
            )
        if (spare := [key for key in content if key not in ("version", "claim")]) != []:
            raise InvalidDataError(
                f"Expected the keys version and claim in {source}, got {spare[0]!r:.80}. "
                f"Write claims as tables [[claim]]."
            )


@dataclass(frozen=True)
class CheckedClaim:
    """A claim beside the result it was checked on.

    Args:
        claim: The claim.
        verdict: Whether it holds. Undefined does not pass.
        reason: Why it fails or is undefined, or which bound let it pass; a sentence's end.
        result: The result it rests on: value, support, parameters; None if there is no such one.
        bounds: The interval that was compared with the limit, NaN without one.
    """

    claim: Claim
    verdict: ClaimVerdict
    reason: str
    result: Result | None = None
    bounds: Interval = NO_INTERVAL

    @property
    def is_met(self) -> bool:
        """Whether the claim passes."""
        return self.verdict is ClaimVerdict.PASS

    def as_json(self) -> dict[str, Any]:
        """Return the record for a JSON file; NaN becomes null."""
        low, high = (None if math.isnan(bound) else bound for bound in self.bounds)
        claim = asdict(self.claim)
        return {
            "claim": claim | {"parameters": dict(self.claim.parameters)},
            "text": str(self.claim),
            "verdict": self.verdict.value,
            "reason": self.reason,
            "low": low,
            "high": high,
            "result": None if self.result is None else self.result.as_json(),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "CheckedClaim":
        """Read a record back."""
        low, high = (math.nan if record[k] is None else record[k] for k in ("low", "high"))
        result = None if record["result"] is None else Result.from_json(record["result"])
        verdict = ClaimVerdict(record["verdict"])
        bounds = Interval(low, high)
        return cls(Claim(**record["claim"]), verdict, str(record["reason"]), result, bounds)


def check_claims(
    claims: Iterable[Claim],
    results: Sequence[Result],
    options: Mapping[str, Any] | None = None,
) -> tuple[CheckedClaim, ...]:
    """Check claims against results, one after the other.

    Args:
        claims: The claims.
        results: What was measured.
        options: What all results were measured with, such as `score_threshold`; the parameters
            of a claim are compared with those of its result, then with these.

    >>> measured = Result("auroc", "paper", "all", 0.91, low=0.88, high=0.94)
    >>> sure = Claim(metric="auroc", at_least=0.9, confidence=0.95)
    >>> [checked.verdict.value for checked in check_claims([sure], [measured])]
    ['fail']
    """
    return tuple(_check(claim, results, options or {}) for claim in claims)


def _check(claim: Claim, results: Sequence[Result], options: Mapping[str, Any]) -> CheckedClaim:
    key = (claim.metric, claim.convention, claim.split)
    found = [r for r in results if (r.metric, r.convention, r.split) == key]
    if not found:
        return CheckedClaim(claim, ClaimVerdict.UNDEFINED, _what_exists(claim, results))
    (result,) = found
    if math.isnan(result.value):
        return CheckedClaim(claim, ClaimVerdict.UNDEFINED, str(result.reason), result)
    if (difference := _other_parameter(claim, {**options, **result.parameters})) is not None:
        return CheckedClaim(claim, ClaimVerdict.UNDEFINED, difference, result)
    return _compare(claim, result)


def _compare(claim: Claim, result: Result) -> CheckedClaim:
    """Compare the value, or the bound of its interval, with the limit."""
    bounds, origin = interval_for_claims(result)
    if not claim.is_met_by(result.value):
        return CheckedClaim(claim, ClaimVerdict.FAIL, "the value misses the limit", result, bounds)
    if claim.confidence is None:
        return CheckedClaim(claim, ClaimVerdict.PASS, "the value meets the limit", result, bounds)
    name, bound = ("upper", bounds.high) if claim.at_least is None else ("lower", bounds.low)
    if math.isnan(bound):
        return CheckedClaim(claim, ClaimVerdict.UNDEFINED, origin, result, bounds)
    is_met = claim.is_met_by(bound)
    verb = "meets" if is_met else "misses"
    reason = f"the {name} bound of the {origin} {verb} the limit"
    verdict = ClaimVerdict.PASS if is_met else ClaimVerdict.FAIL
    return CheckedClaim(claim, verdict, reason, result, bounds)


def interval_for_claims(result: Result) -> tuple[Interval, str]:
    r"""Return an interval that may support a claim and its name, or NaN and why there is none.

    Where no image errs, bootstrap replicates are all equal and their interval has no width,
    however few images there are. A share of 0 or 1 then has the exact binomial bound of Clopper
    and Pearson for its n images, $(\alpha / 2)^{1 / n}$ from the other end with
    $\alpha = 0.05$. It also bounds the mean of any n independent numbers between 0 and 1, because
    they are all 1 with probability $\mu^n$ at the most.

    >>> interval_for_claims(Result("accuracy", "paper", "all", 1.0, low=1.0, high=1.0, units=100))
    (Interval(low=0.9637833073548235, high=1.0), 'exact interval for 100 images')
    """
    if math.isnan(result.low):
        few = f"only {count(result.units or 0, 'image')} contribute to it" if result.few else ""
        why = few or "fewer than 10 bootstrap replicates define it"
        return NO_INTERVAL, f"it has no interval: {why}"
    if result.low < result.high:
        return Interval(result.low, result.high), "bootstrap interval"
    is_share = not get_metric(result.metric).is_count and result.metric not in _UNBOUNDED
    if not (is_share and result.units and result.value in (0.0, 1.0)):
        reason = "its interval has no width: all bootstrap replicates are equal"
        return NO_INTERVAL, reason
    margin = 1 - ((1 - LEVEL) / 2) ** (1 / result.units)
    bounds = Interval(0.0, margin) if result.value == 0 else Interval(1 - margin, 1.0)
    return bounds, f"exact interval for {count(result.units, 'image')}"


def _what_exists(claim: Claim, results: Sequence[Result]) -> str:
    offered = [result for result in results if result.metric == claim.metric]
    if not offered:
        return f"{claim.metric} is not among the metrics that were measured"
    conventions = ", ".join(sorted({result.convention for result in offered}))
    splits = ", ".join(dict.fromkeys(result.split for result in offered))
    return (
        f"{claim.metric} has no value in the convention {claim.convention!r} on the split "
        f"{claim.split!r}; conventions: {conventions}; splits: {splits}"
    )


def _other_parameter(claim: Claim, parameters: Mapping[str, Any]) -> str | None:
    for name, value in claim.parameters.items():
        if parameters.get(name) is None:
            return f"it was measured without a parameter {name!r}"
        if parameters[name] != value:
            return f"it was measured with {name} = {parameters[name]}, not {value}"
    return None
