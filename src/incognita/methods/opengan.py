"""A discriminator that learned to tell known features from ones a generator makes up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from incognita.containers.needs import Needs
from incognita.containers.outputs import ClassifierOutputs
from incognita.methods.method import Method, Refit
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
    r"""How surely a discriminator takes the features for made-up ones.

    $$ s(x) = -D(z(x)), \qquad \min_D \max_G \; E_z[\operatorname{softplus}(-D(z))]
       + E_\eta[\operatorname{softplus}(D(G(\eta)))] $$

    with z the features, standardized by known training rows, D the discriminator before its
    sigmoid (which would tie the scores) and G a generator fed with noise, itself trained by
    $\min_G E_\eta[\operatorname{softplus}(-D(G(\eta)))]$.
    Kong and Ramanan, OpenGAN: Open-Set Recognition via Open Data Generation, ICCV 2021, on features
    and without outliers in training. The leaky slope 0.2, Adam with betas 0.5 and 0.999, batches of
    128 and a discriminator 1.5 times slower than the generator are the authors'.

    The discriminator of a game says little off the known data once the generator has caught up; the
    paper therefore chooses the epoch on unknown validation data, and so does a search over
    `epochs`: one training keeps every candidate.

    Departures, so that it runs in seconds on a CPU (9 s on one core for 10,000 x 512): networks of
    two hidden layers (`width`, `width / 2`) and one, without batch normalization, in place of the
    authors' four each; a learning rate of 1e-3, ten times theirs, for 20 epochs where they take
    100; at most `rows` known rows, drawn once, in place of all. Same seed, device and number of
    threads: same numbers.

    Args:
        epochs: ClassifierExtractor over the drawn rows; the discriminator of that epoch scores.
        width: Units of the widest layer.
        learning_rate: Of the generator.
        rows: The most known rows to learn from.
        seed: Of weights, noise, order and drawn rows.

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

    def fit_statistics(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        assert known.features is not None  # check() has seen to it
        with torch.inference_mode(False), torch.enable_grad():
            rows = drawn_rows(known.features, self.rows, seed=self.seed).float()
            spread, self.mean_ = torch.std_mean(rows.double(), dim=0, correction=0)
            self.scale_ = torch.where(spread > 0, spread, 1.0)
            with one_thread():
                self.discriminators_ = self._train((rows - self.mean_).div_(self.scale_).float())

    def finalize(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        if f"{self.epochs}.0.weight" not in self.discriminators_:
            self.fit_statistics(known, validation)

    def score(self, outputs: ClassifierOutputs) -> Float[Tensor, "n"]:
        self.check(outputs)
        assert outputs.features is not None  # check() has seen to it
        device = outputs.features.device
        mean, scale = self.mean_.to(device), self.scale_.to(device)
        mean, layers = standardizing(layers_of(self._kept(), device), mean, scale)
        return by_chunk(
            lambda part: -_apply(layers, part.to(mean.dtype) - mean).squeeze(1), outputs.features
        )

    def _kept(self) -> dict[str, Tensor]:
        """Find the discriminator of the epoch asked for."""
        prefix = f"{self.epochs}."
        kept = self.discriminators_.items()
        return {name[len(prefix) :]: t for name, t in kept if name.startswith(prefix)}

    def _train(self, rows: Tensor) -> dict[str, Tensor]:
        """Play the game and keep the discriminator of every epoch that may be asked for."""
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
                made_up = _apply(generator, noise)
                _play(discriminator, rows[index.to(rows.device)], made_up, *steps)
            if epoch == self.epochs or epoch in self.search_space["epochs"]:
                kept |= {f"{epoch}.{name}": t for name, t in tensors_of(discriminator).items()}
        return kept


def _play(
    discriminator: Sequence[Layer],
    real: Tensor,
    made_up: Tensor,
    discriminator_step: Adam,
    generator_step: Adam,
) -> None:
    """Let each side answer the other once."""
    doubt_of_real = softplus(-_apply(discriminator, real)).mean()
    trust_in_made_up = softplus(_apply(discriminator, made_up.detach())).mean()
    discriminator_step.down(doubt_of_real + trust_in_made_up)
    generator_step.down(softplus(-_apply(discriminator, made_up)).mean())


def _apply(layers: Sequence[Layer], rows: Tensor) -> Tensor:
    return apply_layers(layers, rows, slope=_SLOPE)
