"""What to do with numbers: thresholds, by the name of the policy that chooses them."""

from incognita.registry import Registry

_HERE = "incognita.decisions"

SCORE_POLICIES = Registry(
    "score policy",
    {
        "quantile": f"{_HERE}.score_policies:KnownQuantile",
        "gaussian": f"{_HERE}.score_policies:KnownGaussian",
        "harmonic-mean": f"{_HERE}.score_policies:HarmonicMean",
        "fixed": f"{_HERE}.score_policies:Fixed",
    },
)
CONFIDENCE_POLICIES = Registry(
    "confidence policy",
    {
        "f1": f"{_HERE}.confidence_policies:F1Optimal",
        "lrp": f"{_HERE}.confidence_policies:LRPOptimal",
        "fixed": f"{_HERE}.confidence_policies:FixedConfidence",
    },
)
