"""Every method gives on a GPU what it gives on a CPU, up to rounding."""

import numpy as np
import pytest
import torch
from tests.test_contracts import COMPOSED, NAMES, PER_HEAD, case_of

from incognita.evaluation.fit_and_score import SharedTensor
from incognita.metrics.ranking import auroc

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
TRAINED = {"opengan", "safe"}  # small networks: steps round differently and drift apart


@pytest.mark.parametrize("name", [*NAMES, *COMPOSED, *PER_HEAD])
def test_scores_on_a_gpu_are_those_of_a_cpu(name):
    on_cpu, on_gpu = case_of(name), case_of(name)
    on_cpu.fit()
    on_gpu.known, on_gpu.validation = on_gpu.known.to("cuda"), on_gpu.validation.to("cuda")
    on_gpu.fit()
    sets = [on_cpu.outputs(300, seed=3), on_cpu.outputs(300, seed=4, unknown=True)]
    expected = np.concatenate([on_cpu.method.score(rows).numpy() for rows in sets])
    found = np.concatenate([on_gpu.method.score(rows.to("cuda")).cpu().numpy() for rows in sets])
    is_unknown = np.repeat([False, True], 300)
    if name in TRAINED:
        assert abs(auroc(found, is_unknown) - auroc(expected, is_unknown)) < 0.02
        return
    assert np.abs(found - expected).max() <= 1e-5 * np.ptp(expected)
    assert abs(auroc(found, is_unknown) - auroc(expected, is_unknown)) <= 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_a_write_on_a_gpu_is_seen(dtype):
    column = torch.arange(1001, device="cuda").reshape(143, 7).to(dtype)
    shared = SharedTensor(column, column.cpu())
    assert not shared.is_changed()
    column[-1, -1] = ~column[-1, -1] if dtype == torch.bool else 5
    assert shared.is_changed()
    shared.restore()
    assert not shared.is_changed()
