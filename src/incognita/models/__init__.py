"""Who is evaluated: classifiers, and detectors, of any library behind one face each."""

from incognita.registry import Registry

MODELS = Registry(
    "model",
    {
        "terra:classifier": "incognita.models.embedded.terra_classifier:load_terra_classifier",
        "terra:detector": "incognita.models.embedded.terra_detector:load_wrapped_terra_detector",
        "digits:classifier": "incognita.models.embedded.digits:load_digits_classifier",
    },
)
