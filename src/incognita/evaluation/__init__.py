"""The order of work: `evaluate`, `certify`, self-awareness; from models and files to results."""

from typing import TYPE_CHECKING

from incognita.registry import attach

if TYPE_CHECKING:
    from incognita.evaluation.compare import ComparisonReport as ComparisonReport
    from incognita.evaluation.compare import compare_results as compare_results
    from incognita.evaluation.confusions import ConfusionReport as ConfusionReport
    from incognita.evaluation.confusions import study_confusions as study_confusions
    from incognita.evaluation.reproduce import ReproductionReport as ReproductionReport
    from incognita.evaluation.reproduce import reproduce as reproduce
    from incognita.evaluation.score_certificate import certify_scores as certify_scores
    from incognita.evaluation.self_aware import AnnotatedSet as AnnotatedSet
    from incognita.evaluation.self_aware import SelfAwareTest as SelfAwareTest
    from incognita.evaluation.self_aware import evaluate_self_aware as evaluate_self_aware
    from incognita.evaluation.self_aware_benchmark import SelfAwareRun as SelfAwareRun
    from incognita.evaluation.self_aware_benchmark import make_self_aware as make_self_aware
    from incognita.evaluation.self_aware_study import study_self_aware as study_self_aware
    from incognita.evaluation.verify import verify_results as verify_results

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".score_certificate": ["certify_scores"],
        ".compare": ["ComparisonReport", "compare_results"],
        ".reproduce": ["ReproductionReport", "reproduce"],
        ".confusions": ["ConfusionReport", "study_confusions"],
        ".verify": ["verify_results"],
        ".self_aware": ["AnnotatedSet", "SelfAwareTest", "evaluate_self_aware"],
        ".self_aware_benchmark": ["SelfAwareRun", "make_self_aware"],
        ".self_aware_study": ["study_self_aware"],
    },
)
