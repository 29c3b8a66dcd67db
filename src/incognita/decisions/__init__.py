"""Thresholds, and the policies that choose them.

>>> from incognita.decisions import KnownQuantile, score_policy
>>> score_policy("quantile(share=0.99)") == KnownQuantile(share=0.99)
True
"""

from typing import Any

from incognita.registry import Registry

_HERE = "incognita.decisions"

SCORE_POLICIES = Registry(
    "score policy",
    {
        "quantile": f"{_HERE}.unknown_thresholds:KnownQuantile",
        "gaussian": f"{_HERE}.unknown_thresholds:KnownGaussian",
        "harmonic-mean": f"{_HERE}.unknown_thresholds:HarmonicMean",
        "fixed": f"{_HERE}.unknown_thresholds:Fixed",
    },
)
CONFIDENCE_POLICIES = Registry(
    "confidence policy",
    {
        "f1": f"{_HERE}.confidence_thresholds:F1Optimal",
        "lrp": f"{_HERE}.confidence_thresholds:LRPOptimal",
        "fixed": f"{_HERE}.confidence_thresholds:FixedConfidence",
    },
)
_OTHERS = {
    "ConfidenceThreshold": f"{_HERE}.thresholds:ConfidenceThreshold",
    "UnknownThreshold": f"{_HERE}.thresholds:UnknownThreshold",
    "confidence_policy": f"{_HERE}.parse:confidence_policy",
    "score_policy": f"{_HERE}.parse:score_policy",
}
_HOMES = (*SCORE_POLICIES.homes.values(), *CONFIDENCE_POLICIES.homes.values())
_EXPORTS = Registry("name", {home.partition(":")[2]: home for home in _HOMES} | _OTHERS)


def __getattr__(name: str) -> Any:
    """Import a class or function when it is first used."""
    if name not in _EXPORTS.homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _EXPORTS.get(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS.homes})
