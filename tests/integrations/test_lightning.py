"""The Lightning callback logs what our metrics compute of the same logits."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from incognita.containers import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.methods import load_method
from incognita.metrics import ranking_metrics

lightning = pytest.importorskip("lightning.pytorch", exc_type=ImportError)


def monitor(*arguments, **options):
    from incognita.integrations.lightning import UnknownMonitor

    return UnknownMonitor(*arguments, **options)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 3)

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        return {"logits": self.layer(batch[0])}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader(n, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    inputs = scale * torch.randn(n, 4, generator=generator)
    return DataLoader(TensorDataset(inputs, torch.arange(n) % 3), batch_size=8)


def trainer(callback, folder):
    return lightning.Trainer(
        max_epochs=2, callbacks=[callback], default_root_dir=folder, accelerator="cpu",
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_it_logs_what_our_metrics_compute(tmp_path):
    module, known, unknown = Module(), loader(40, 1), loader(24, 2, scale=0.2)
    run = trainer(monitor("energy"), tmp_path)
    run.fit(module, loader(40, 3), val_dataloaders=[known, unknown])
    with torch.no_grad():
        logits = [module.layer(part.dataset.tensors[0]) for part in (known, unknown)]
    rows = ClassifierOutputs(tuple(range(64)), torch.cat(logits))
    is_unknown = torch.arange(64) >= 40
    ours = ranking_metrics(load_method("energy").score(rows).numpy(), is_unknown.numpy())
    for name in ("auroc", "aupr_unknown", "fpr_at_95_unknown_recall"):
        logged = float(run.callback_metrics[f"unknown/{name}"])
        assert logged == pytest.approx(getattr(ours, name), abs=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_outputs_without_logits_are_a_sentence(tmp_path):
    module = Module()
    module.validation_step = lambda batch, batch_idx, dataloader_idx=0: None
    with pytest.raises(InvalidDataError, match="Expected logits with one row per image"):
        trainer(monitor(), tmp_path).validate(module, [loader(8, 1), loader(8, 2)], verbose=False)


@pytest.mark.parametrize("name", ["knn", "odin", "temperature"])
def test_methods_that_need_more_than_logits_are_refused(name):
    with pytest.raises(InvalidDataError, match="reads logits alone"):
        monitor(name)
