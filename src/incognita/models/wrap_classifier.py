"""Old home of `wrap_classifier`; import it from `incognita.models`."""

from incognita.models.classifier import WrappedClassifier as WrappedClassifier
from incognita.models.classifier import wrap_classifier as wrap_classifier
