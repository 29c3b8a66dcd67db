"""Thresholds, and the policies that choose them.

>>> from incognita.decisions import KnownQuantile, score_policy
>>> score_policy("quantile(share=0.99)") == KnownQuantile(share=0.99)
True
"""

from incognita.registry import Registry, attach

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
__getattr__, __dir__, __all__ = attach(
    __name__,
    SCORE_POLICIES.exports()
    | CONFIDENCE_POLICIES.exports()
    | {
        ".thresholds": ["ConfidenceThreshold", "UnknownThreshold"],
        ".parse": ["confidence_policy", "score_policy"],
    },
)
__all__ += ["CONFIDENCE_POLICIES", "SCORE_POLICIES"]
