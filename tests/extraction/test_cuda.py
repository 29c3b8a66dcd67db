"""The same outputs on a GPU as on a CPU, up to rounding, and the same bytes in every run."""

import pytest
import torch
from tests.extraction.test_extract import mahalanobis
from tests.extraction.tiny import TinyClassifier, images

from incognita.extraction.extra_outputs import (
    AdaScaleStep,
    GramRows,
    InputStep,
    LogitsWithoutTopDirection,
)
from incognita.extraction.extract import Settings, extract

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
EXTRA_OUTPUTS = (
    GramRows(),
    InputStep(0.001),
    AdaScaleStep(),
    LogitsWithoutTopDirection(),
    mahalanobis(),
)


def recorded(device, precision="float32"):
    classifier = TinyClassifier()
    settings = Settings(device=device, precision=precision)
    extracted = extract(
        classifier, images(1100), layers=True, extra_outputs=EXTRA_OUTPUTS, settings=settings
    )
    assert next(classifier.module.parameters()).device.type == "cpu"
    outputs = extracted.outputs
    columns = {"logits": outputs.logits, "features": outputs.features}
    return columns | outputs.layers | outputs.extra_outputs, extracted.passes


def test_a_gpu_gives_what_a_cpu_gives_and_gives_it_again():
    (on_cpu, passes), (on_gpu, same_passes), (again, _) = map(recorded, ("cpu", "cuda", "cuda"))
    assert passes == same_passes
    for name, column in on_cpu.items():
        assert on_gpu[name].device.type == "cpu"
        # the sign of a gradient near zero may differ, so that steps agree on average
        error = (on_gpu[name] - column).abs().mean() / column.abs().mean()
        assert error < 1e-3, name
        assert torch.equal(on_gpu[name], again[name]), name
    torch.testing.assert_close(on_gpu["logits"], on_cpu["logits"], rtol=1e-5, atol=1e-5)


def test_bfloat16_on_a_gpu_gives_float32_columns():
    columns, _ = recorded("cuda", "bfloat16")
    assert all(column.dtype == torch.float32 for column in columns.values())
