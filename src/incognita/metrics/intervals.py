"""Old home of names that are now in `incognita.metrics.measure` and `incognita.metrics.ranking`."""

from incognita.metrics.measure import Difference as Difference
from incognita.metrics.measure import Interval as Interval
from incognita.metrics.measure import bootstrap_weights as bootstrap_weights
from incognita.metrics.measure import interval as interval
from incognita.metrics.measure import paired_difference as paired_difference
from incognita.metrics.ranking import bootstrap_ranking as bootstrap_ranking
