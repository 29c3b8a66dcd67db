"""OpenGAN: a discriminator trained to tell known features from generated ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from incognita.containers.needs import Needs
from incognita.methods.method import Method, Refit, Rows
from incognita.methods.numerics.perceptrons import (
    Adam,
    Layer,
    apply_layers,
    layers_of,
    new_perceptron,
    one_thread,
    standardizing,
    tensors_of,
)
from incognita.methods.numerics.rows import by_chunk, chunks, drawn_rows
from incognita.methods.softmax import check_positive
from incognita.shapes import Float

_SLOPE = 0.2
_BATCH = 128
_BETAS = (0.5, 0.999)
_NOISE = 64


@dataclass(eq=False)
class OpenGAN(Method):
    r"""OpenGAN: a discriminator of known and generated features (Kong and Ramanan, 2021).

    $$ s(x) = -D(z(x)), \qquad \min_D \max_G \; E_z[\operatorname{softplus}(-D(z))]
       + E_\eta[\operatorname{softplus}(D(G(\eta)))] $$

    with z the features, standardized by known training rows, D the discriminator before its
    sigmoid (which would tie the scores) and G a generator fed with noise, itself trained by
    $\min_G E_\eta[\operatorname{softplus}(-D(G(\eta)))]$.
    Kong and Ramanan, OpenGAN: Open-Set Recognition via Open Data Generation, ICCV 2021, on features
    and without outliers in training. The leaky slope 0.2, Adam with betas 0.5 and 0.999, batches of
    128 and a discriminator 1.5 times slower than the generator are the authors'.

    Once the generator has caught up, the discriminator is no longer informative away from the known
    data. The paper therefore chooses the epoch on unknown validation data, and so does a search
    over `epochs`: one training keeps every candidate.

    Departures, so that it trains quickly on a CPU: networks of
    two hidden layers (`width`, `width / 2`) and one, without batch normalization, in place of the
    authors' four each; a learning rate of 1e-3, ten times theirs, for 20 epochs where they take
    100; at most `rows` known rows, drawn once, in place of all. Same seed, device and number of
    threads: same numbers.

    Args:
        epochs: Passes over the drawn rows; the discriminator of that epoch scores.
        width: Units of the widest layer.
        learning_rate: Learning rate of the generator.
        rows: Maximum number of known rows to train on.
        seed: Seed of weights, noise, order and drawn rows.

    >>> from incognita import ClassifierOutputs
    >>> noise = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    >>> features = 0.1 * noise + torch.tensor([-1.0, 1.0]).repeat(100)[:, None]  # two clusters
    >>> known = ClassifierOutputs(tuple(range(200)), torch.zeros(200, 2), features)
    >>> center = ClassifierOutputs(("a",), torch.zeros(1, 2), torch.zeros(1, 4))
    >>> method = OpenGAN().fit(known)
    >>> bool(method.score(center) > method.score(known).max())
    True
    """

    epochs: int = 20
    width: int = 128
    learning_rate: int | float = 1e-3
    rows: int = 20_000
    seed: int = 0
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.KNOWN
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"epochs": (1, 2, 5, 10, 20)}
    invalidates: ClassVar[Mapping[str, Refit]] = {
        "epochs": Refit.FINALIZE,
        "width": Refit.STATISTICS,
        "learning_rate": Refit.STATISTICS,
        "rows": Refit.STATISTICS,
        "seed": Refit.STATISTICS,
    }

    def __post_init__(self) -> None:
        check_positive(
            self.title,
            epochs=self.epochs,
            width=self.width,
            learning_rate=self.learning_rate,
            rows=self.rows,
        )

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        with torch.inference_mode(False), torch.enable_grad():
            rows = drawn_rows(known.features, self.rows, seed=self.seed).float()
            spread, self.mean_ = torch.std_mean(rows.double(), dim=0, correction=0)
            self.scale_ = torch.where(spread > 0, spread, 1.0)
            with one_thread():
                self.discriminators_ = self._train((rows - self.mean_).div_(self.scale_).float())

    def finalize(self, known: Rows, validation: Rows) -> None:
        if f"{self.epochs}.0.weight" not in self.discriminators_:
            self.fit_statistics(known, validation)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        device = rows.features.device
        mean, scale = self.mean_.to(device), self.scale_.to(device)
        mean, layers = standardizing(layers_of(self._kept(), device), mean, scale)
        return by_chunk(
            lambda part: -_apply(layers, part.to(mean.dtype) - mean).squeeze(1), rows.features
        )

    def _kept(self) -> dict[str, Tensor]:
        """Return the discriminator of the chosen epoch."""
        prefix = f"{self.epochs}."
        kept = self.discriminators_.items()
        return {name[len(prefix) :]: t for name, t in kept if name.startswith(prefix)}

    def _train(self, rows: Tensor) -> dict[str, Tensor]:
        """Train both networks and keep the discriminator of every epoch of the search space."""
        rng = torch.Generator().manual_seed(self.seed)
        d = rows.shape[1]
        discriminator = new_perceptron((d, self.width, max(1, self.width // 2), 1), rows, rng)
        generator = new_perceptron((_NOISE, self.width, d), rows, rng)
        steps = (
            Adam(discriminator, self.learning_rate / 1.5, _BETAS),
            Adam(generator, self.learning_rate, _BETAS),
        )
        kept: dict[str, Tensor] = {}
        for epoch in range(1, self.epochs + 1):
            for (index,) in chunks(torch.randperm(len(rows), generator=rng), rows=_BATCH):
                noise = torch.randn(len(index), _NOISE, generator=rng).to(rows.device)
                generated = _apply(generator, noise)
                _step(discriminator, rows[index.to(rows.device)], generated, *steps)
            if epoch == self.epochs or epoch in self.search_space["epochs"]:
                kept |= {f"{epoch}.{name}": t for name, t in tensors_of(discriminator).items()}
        return kept


def _step(
    discriminator: Sequence[Layer],
    real: Tensor,
    generated: Tensor,
    discriminator_step: Adam,
    generator_step: Adam,
) -> None:
    """Take one step of the discriminator, then one of the generator."""
    loss_of_real = softplus(-_apply(discriminator, real)).mean()
    loss_of_generated = softplus(_apply(discriminator, generated.detach())).mean()
    discriminator_step.down(loss_of_real + loss_of_generated)
    generator_step.down(softplus(-_apply(discriminator, generated)).mean())


def _apply(layers: Sequence[Layer], rows: Tensor) -> Tensor:
    return apply_layers(layers, rows, slope=_SLOPE)
