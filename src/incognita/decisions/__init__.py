"""What to do with numbers: thresholds, by the name of the policy that chooses them."""

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
