"""Who is evaluated: classifiers of any library behind one face."""

from incognita.registry import Registry

MODELS = Registry(
    "model",
    {
        "terra:classifier": "incognita.models.terra:load_terra_classifier",
        "digits:classifier": "incognita.models.digits:load_digits_classifier",
    },
)
