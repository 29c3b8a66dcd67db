"""A Lightning callback that logs how well unknown images are told apart while a network trains."""

from typing import Any

import torch
from torch import Tensor

from incognita.containers import ClassifierOutputs, Needs
from incognita.errors import InvalidDataError
from incognita.integrations.torchmetrics import UnknownRanking
from incognita.methods import parse_method
from incognita.methods.method import Method
from incognita.registry import need

Callback: Any = need("lightning.pytorch", extra="lightning").Callback


class UnknownMonitor(Callback):  # type: ignore[misc]
    """Log AUROC, FPR@95 and AUPR of unknown scores after each validation.

    The module's `validation_step` returns the logits, or a mapping with `logits`. Validation data
    are known images, and one or several loaders of unknown images:

        trainer = Trainer(callbacks=[UnknownMonitor("energy", unknown_loaders=(1,))])
        trainer.fit(module, train, val_dataloaders=[known, unknown])

    logs `unknown/auroc` and so on. Only methods on logits that learn nothing can be used, such as
    msp, max-logit, energy, entropy and gen.

    Args:
        method: The method, or its name.
        unknown_loaders: Positions of the loaders whose images are unknown; all others are known.
        prefix: What the names of the logged numbers begin with.
    """

    def __init__(
        self,
        method: str | Method = "energy",
        *,
        unknown_loaders: tuple[int, ...] = (1,),
        prefix: str = "unknown/",
    ) -> None:
        super().__init__()
        self.method = parse_method(method) if isinstance(method, str) else method
        if self.method.all_needs != Needs.LOGITS or self.method.extra_outputs():
            raise InvalidDataError(
                f"Expected a method that reads logits alone, got {self.method.title}. Choose msp, "
                f"max-logit, energy, entropy or gen."
            )
        self.unknown_loaders, self.prefix = frozenset(unknown_loaders), prefix
        self.ranking = UnknownRanking()

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Forget the rows of the last validation."""
        self.ranking.reset()
        self.ranking.to(pl_module.device)

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Score the logits of one batch."""
        logits = outputs.get("logits") if isinstance(outputs, dict) else outputs
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise InvalidDataError(
                "Expected logits with one row per image from validation_step, got "
                f"{type(logits).__name__}. Return them, or a mapping with 'logits'."
            )
        rows = ClassifierOutputs(tuple(range(len(logits))), logits.detach())
        is_unknown = dataloader_idx in self.unknown_loaders
        score = self.method.score(rows)
        self.ranking.update(score, torch.full(score.shape, is_unknown, device=score.device))

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log all ranking metrics; they are computed over all processes."""
        numbers = {f"{self.prefix}{name}": v for name, v in self.ranking.compute().items()}
        pl_module.log_dict(numbers, add_dataloader_idx=False)
