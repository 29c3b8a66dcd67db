"""Methods run where the network does, and on the CPU where there is too little memory."""

import numpy as np
import pytest
import torch
from tests.evaluation.worlds import TinyNet, tiny_benchmark

import incognita
from incognita import wrap_classifier
from incognita.evaluation.fit_and_score import FittedMethod
from incognita.extraction.settings import Settings
from incognita.methods import KNN

METHODS = {
    "knn": KNN(k=5),
    "mds": incognita.load_method("mds"),
    "msp": incognita.load_method("msp"),
}


def test_a_method_that_finds_too_little_memory_is_fitted_on_the_cpu(monkeypatch):
    expected = evaluation()
    fit, steps = KNN.fit_statistics, []

    def short_of_memory(self, known, validation):
        if not steps:
            steps.append("full")
            raise torch.OutOfMemoryError("CUDA out of memory")
        fit(self, known, validation)

    monkeypatch.setattr(KNN, "fit_statistics", short_of_memory)
    found = evaluation()
    assert steps == ["full"]
    assert not found.failed
    assert (
        found.get("knn").get("auroc", "near").value
        == expected.get("knn").get("auroc", "near").value
    )


def evaluation(device="cpu"):
    model = wrap_classifier(TinyNet(), preprocess="none")
    settings = Settings(device=device)
    return incognita.evaluate(
        model, tiny_benchmark(), methods=dict(METHODS), n_resamples=0, settings=settings
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_evaluation_on_a_gpu_agrees_with_one_on_a_cpu(monkeypatch):
    devices = []
    score = FittedMethod.score

    def noting(self, name, outputs):
        devices.append((self.device, outputs.logits.device.type))
        score(self, name, outputs)

    monkeypatch.setattr(FittedMethod, "score", noting)
    on_gpu, on_cpu = evaluation("cuda"), evaluation()
    assert set(devices[: len(devices) // 2]) == {("cuda:0", "cuda")}
    for title in METHODS:
        pair = [run.get(title).get("auroc", "near").value for run in (on_gpu, on_cpu)]
        np.testing.assert_allclose(*pair, atol=2e-3)
