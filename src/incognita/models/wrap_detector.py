"""Old home of `wrap_detector` and `select_classes`; import them from `incognita.models`."""

from incognita.models.detector import SelectedClasses as SelectedClasses
from incognita.models.detector import select_classes as select_classes
from incognita.models.detector import wrap_detector as wrap_detector
