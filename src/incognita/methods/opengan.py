"""A discriminator that learned to tell known features from ones a generator makes up."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, linear, softplus

from incognita.containers.classification import ClassifierOutputs
from incognita.containers.needs import Needs
from incognita.methods.chunks import by_chunk, chunks
from incognita.methods.logits import check_positive
from incognita.methods.method import Method, Refit
from incognita.methods.sampling import drawn_rows
from incognita.shapes import Float

_SLOPE = 0.2
_BATCH = 128
_BETAS = (0.5, 0.999)
_NOISE = 64


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread: sharing out such small products takes longer than they do."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


class _Layer(NamedTuple):
    weight: Tensor
    bias: Tensor


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
        epochs: Passes over the drawn rows; the discriminator of that epoch scores.
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
        "epochs": Refit.SETTLE,
        "width": Refit.LEARN,
        "learning_rate": Refit.LEARN,
        "rows": Refit.LEARN,
        "seed": Refit.LEARN,
    }

    def __post_init__(self) -> None:
        check_positive(
            self.title,
            epochs=self.epochs,
            width=self.width,
            learning_rate=self.learning_rate,
            rows=self.rows,
        )

    def learn(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        assert known.features is not None  # check() has seen to it
        with torch.inference_mode(False), torch.enable_grad():
            rows = drawn_rows(known.features, self.rows, seed=self.seed).float()
            spread, self.mean_ = torch.std_mean(rows.double(), dim=0, correction=0)
            self.scale_ = torch.where(spread > 0, spread, 1.0)
            with _one_thread():
                self.discriminators_ = self._train((rows - self.mean_).div_(self.scale_).float())

    def settle(self, known: ClassifierOutputs, validation: ClassifierOutputs) -> None:
        if f"{self.epochs}.0.weight" not in self.discriminators_:
            self.learn(known, validation)

    def score(self, outputs: ClassifierOutputs) -> Float[Tensor, "n"]:
        self.check(outputs)
        assert outputs.features is not None  # check() has seen to it
        device = outputs.features.device
        mean, scale = self.mean_.to(device), self.scale_.to(device)
        layers = [
            _Layer(*(tensor.double().to(device) for tensor in layer)) for layer in self._kept()
        ]
        return by_chunk(
            lambda part: -_apply(layers, (part.double() - mean) / scale).squeeze(1),
            outputs.features,
        )

    def _kept(self) -> list[_Layer]:
        """Find the discriminator of the epoch asked for."""
        return [
            _Layer(
                self.discriminators_[f"{self.epochs}.{k}.weight"],
                self.discriminators_[f"{self.epochs}.{k}.bias"],
            )
            for k in range(3)
        ]

    def _train(self, rows: Tensor) -> dict[str, Tensor]:
        """Play the game and keep the discriminator of every epoch that may be asked for."""
        rng = torch.Generator().manual_seed(self.seed)
        d = rows.shape[1]
        discriminator = _new_network((d, self.width, max(1, self.width // 2), 1), rows, rng)
        generator = _new_network((_NOISE, self.width, d), rows, rng)
        steps = (
            _Adam(discriminator, self.learning_rate / 1.5),
            _Adam(generator, self.learning_rate),
        )
        kept: dict[str, Tensor] = {}
        for epoch in range(1, self.epochs + 1):
            for (index,) in chunks(torch.randperm(len(rows), generator=rng), rows=_BATCH):
                noise = torch.randn(len(index), _NOISE, generator=rng).to(rows.device)
                made_up = _apply(generator, noise)
                _play(discriminator, rows[index.to(rows.device)], made_up, *steps)
            if epoch == self.epochs or epoch in self.search_space["epochs"]:
                kept |= _named(discriminator, epoch)
        return kept


def _play(
    discriminator: Sequence[_Layer],
    real: Tensor,
    made_up: Tensor,
    discriminator_step: "_Adam",
    generator_step: "_Adam",
) -> None:
    """Let each side answer the other once."""
    doubt_of_real = softplus(-_apply(discriminator, real)).mean()
    trust_in_made_up = softplus(_apply(discriminator, made_up.detach())).mean()
    discriminator_step.down(doubt_of_real + trust_in_made_up)
    generator_step.down(softplus(-_apply(discriminator, made_up)).mean())


def _apply(layers: Sequence[_Layer], rows: Tensor) -> Tensor:
    for layer in layers[:-1]:
        rows = leaky_relu(linear(rows, *layer), _SLOPE)
    return linear(rows, *layers[-1])


def _new_network(sizes: Sequence[int], like: Tensor, rng: torch.Generator) -> list[_Layer]:
    """Draw weights that keep the variance of their input (He et al., 2015)."""
    layers = []
    for d_in, d_out in pairwise(sizes):
        weight = torch.randn(d_out, d_in, generator=rng) * (2 / d_in) ** 0.5
        weight, bias = weight.to(like), like.new_zeros(d_out)
        layers.append(_Layer(weight.requires_grad_(), bias.requires_grad_()))
    return layers


class _Adam:
    """Steps down a loss as `torch.optim.Adam` does, whose first step imports a compiler (3 s)."""

    def __init__(self, network: Sequence[_Layer], learning_rate: float) -> None:
        self.tensors = [tensor for layer in network for tensor in layer]
        self.means = [torch.zeros_like(tensor) for tensor in self.tensors]
        self.squares = [torch.zeros_like(tensor) for tensor in self.tensors]
        self.learning_rate, self.n_steps = learning_rate, 0

    def down(self, loss: Tensor) -> None:
        """Move the network one step (Kingma and Ba, 2015, algorithm 1)."""
        gradients = torch.autograd.grad(loss, self.tensors)
        self.n_steps += 1
        first, second = (1 - beta**self.n_steps for beta in _BETAS)
        with torch.no_grad():
            for tensor, mean, square, gradient in zip(
                self.tensors, self.means, self.squares, gradients, strict=True
            ):
                mean.lerp_(gradient, 1 - _BETAS[0])
                square.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
                spread = (square / second).sqrt_().add_(1e-8)
                tensor.addcdiv_(mean, spread, value=-self.learning_rate / first)


def _named(network: Sequence[_Layer], epoch: int) -> dict[str, Tensor]:
    return {
        f"{epoch}.{k}.{name}": tensor.detach().clone()
        for k, layer in enumerate(network)
        for name, tensor in layer._asdict().items()
    }
