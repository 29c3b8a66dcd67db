"""How good: pure functions, arrays in, named results out."""

from incognita.metrics.ranking import RankingMetrics as RankingMetrics
from incognita.metrics.ranking import ranking_metrics as ranking_metrics

__all__ = ["RankingMetrics", "ranking_metrics"]
