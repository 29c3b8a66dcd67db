"""What `incognita.metrics` re-exports."""

import importlib

import pytest

import incognita.metrics


@pytest.mark.parametrize("name", incognita.metrics.__all__)
def test_every_public_name_is_imported_on_first_use(name):
    value = getattr(incognita.metrics, name)
    assert value is getattr(importlib.import_module(value.__module__), name)
    assert name in dir(incognita.metrics)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(
        AttributeError, match=r"module 'incognita.metrics' has no attribute 'aurok'"
    ):
        _ = incognita.metrics.aurok


def test_the_documented_imports_work():
    from incognita.metrics import auroc, average_precision, fpr_at_known_recall, ranking_metrics

    functions = auroc, average_precision, fpr_at_known_recall, ranking_metrics
    assert {function.__module__ for function in functions} == {"incognita.metrics.ranking"}
