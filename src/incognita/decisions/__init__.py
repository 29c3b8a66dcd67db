"""Thresholds with the policies that choose them, calibrators, and self-aware detection.

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
CALIBRATORS = Registry(
    "calibrator",
    {
        "linear": f"{_HERE}.calibrators:Linear",
        "histogram": f"{_HERE}.calibrators:Histogram",
        "isotonic": f"{_HERE}.calibrators:Isotonic",
        "temperature": f"{_HERE}.calibrators:TemperatureScaling",
        "platt": f"{_HERE}.calibrators:PlattScaling",
        "none": f"{_HERE}.calibrators:NoCalibration",
    },
)
BOX_UNCERTAINTIES = Registry(
    "box uncertainty",
    {
        "confidence": f"{_HERE}.box_uncertainty:FromConfidence",
        "entropy": f"{_HERE}.box_uncertainty:ClassEntropy",
        "mean-entropy": f"{_HERE}.box_uncertainty:MeanEntropy",
        "max-class-entropy": f"{_HERE}.box_uncertainty:MaxClassEntropy",
        "dempster-shafer": f"{_HERE}.box_uncertainty:DempsterShafer",
        "determinant": f"{_HERE}.box_uncertainty:CovarianceDeterminant",
        "trace": f"{_HERE}.box_uncertainty:CovarianceTrace",
        "gaussian-entropy": f"{_HERE}.box_uncertainty:GaussianEntropy",
        "balanced": f"{_HERE}.box_uncertainty:Balanced",
        "normalized": f"{_HERE}.box_uncertainty:Normalized",
    },
)
__getattr__, __dir__, __all__ = attach(
    __name__,
    SCORE_POLICIES.exports()
    | CONFIDENCE_POLICIES.exports()
    | CALIBRATORS.exports()
    | BOX_UNCERTAINTIES.exports()
    | {
        ".thresholds": ["ConfidenceThreshold", "UnknownThreshold"],
        ".guard": ["Guard", "GuardOutput", "GuardedModel", "ExpectedShares"],
        ".parse": ["uncertainty_of", "calibrator_of", "confidence_policy", "score_policy"],
        ".self_aware": ["SelfAware", "SelfAwareOutput", "SelfAwareSettings"],
        ".self_aware_detector": ["SelfAwareDetector"],
        ".self_aware_files": ["load_self_aware", "save_self_aware"],
    },
)
__all__ += ["BOX_UNCERTAINTIES", "CALIBRATORS", "CONFIDENCE_POLICIES", "SCORE_POLICIES"]
