"""Small fully connected networks, and the optimizer that trains them on a CPU."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, linear

from incognita.shapes import Float

_LARGE = 2**18  # weights of a layer above which float32 saves time


class Layer(NamedTuple):
    """One linear layer of a network."""

    weight: Float[Tensor, "d_out d_in"]
    bias: Float[Tensor, "d_out"]


def new_perceptron(sizes: Sequence[int], like: Tensor, rng: torch.Generator) -> list[Layer]:
    """Draw weights that keep the variance of their input (He et al., 2015).

    >>> [tuple(layer.weight.shape) for layer in new_perceptron((4, 3, 1), torch.zeros(1),
    ...     torch.Generator())]
    [(3, 4), (1, 3)]
    """
    layers = []
    for d_in, d_out in pairwise(sizes):
        weight = torch.randn(d_out, d_in, generator=rng) * (2 / d_in) ** 0.5
        weight, bias = weight.to(like), like.new_zeros(d_out)
        layers.append(Layer(weight.requires_grad_(), bias.requires_grad_()))
    return layers


def apply_layers(
    layers: Sequence[Layer], rows: Float[Tensor, "n d_in"], *, slope: float = 0.0
) -> Float[Tensor, "n d_out"]:
    """Apply the layers in turn, with leaky rectified units of this `slope` between them.

    >>> network = [Layer(torch.tensor([[1.0], [-1.0]]), torch.zeros(2)),
    ...            Layer(torch.tensor([[2.0, 3.0]]), torch.ones(1))]
    >>> apply_layers(network, torch.tensor([[5.0], [-5.0]])).tolist()
    [[11.0], [16.0]]
    """
    for layer in layers[:-1]:
        rows = leaky_relu(linear(rows.to(layer.weight.dtype), *layer), slope)
    return linear(rows.to(layers[-1].weight.dtype), *layers[-1])


class Adam:
    """The optimizer of `torch.optim.Adam`, without importing the compiler that it imports."""

    def __init__(
        self,
        network: Sequence[Layer],
        learning_rate: int | float,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        self.tensors = [tensor for layer in network for tensor in layer]
        self.means = [torch.zeros_like(tensor) for tensor in self.tensors]
        self.squares = [torch.zeros_like(tensor) for tensor in self.tensors]
        self.learning_rate, self.betas, self.n_steps = learning_rate, betas, 0

    def down(self, loss: Tensor) -> None:
        """Move the network one step (Kingma and Ba, 2015, algorithm 1)."""
        gradients = torch.autograd.grad(loss, self.tensors)
        self.n_steps += 1
        first, second = (1 - beta**self.n_steps for beta in self.betas)
        with torch.no_grad():
            for tensor, mean, square, gradient in zip(
                self.tensors, self.means, self.squares, gradients, strict=True
            ):
                mean.lerp_(gradient, 1 - self.betas[0])
                square.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
                spread = (square / second).sqrt_().add_(1e-8)
                tensor.addcdiv_(mean, spread, value=-self.learning_rate / first)


def tensors_of(network: Sequence[Layer]) -> dict[str, Tensor]:
    """Return copies of all weights by name, as state of a method.

    >>> list(tensors_of([Layer(torch.ones(1, 2), torch.zeros(1))]))
    ['0.weight', '0.bias']
    """
    return {
        f"{k}.{name}": tensor.detach().clone()
        for k, layer in enumerate(network)
        for name, tensor in layer._asdict().items()
    }


def layers_of(tensors: Mapping[str, Tensor], device: torch.device) -> list[Layer]:
    """Build the layers that `tensors_of` returned.

    They are float64, so that outputs hardly ever tie; large ones stay in the float32 they were
    trained in, whose rounding moves an output by some 1e-7.
    """
    layers = []
    for k in range(len(tensors) // len(Layer._fields)):
        weight, bias = tensors[f"{k}.weight"], tensors[f"{k}.bias"]
        dtype = weight.dtype if weight.numel() >= _LARGE else torch.float64
        layers.append(Layer(weight.to(device, dtype), bias.to(device, dtype)))
    return layers


def standardizing(
    layers: Sequence[Layer], mean: Float[Tensor, "d_in"], scale: Float[Tensor, "d_in"]
) -> tuple[Float[Tensor, "d_in"], list[Layer]]:
    """Fold standardization into the first layer; return what to subtract from rows, and the layers.

    The first result is the mean rounded to the type of the layer; the rest of the mean is in the
    bias of the layer, and the scale in its weight.

    >>> layer = Layer(torch.tensor([[8.0]]), torch.zeros(1))
    >>> mean, layers = standardizing([layer], torch.tensor([3.0]), torch.tensor([4.0]))
    >>> apply_layers(layers, torch.tensor([[5.0]]) - mean)  # 8 * (5 - 3) / 4
    tensor([[4.]])
    """
    first, dtype = layers[0], layers[0].weight.dtype
    weight, rounded = first.weight.double() / scale, mean.to(dtype)
    bias = first.bias - weight @ (mean.double() - rounded)
    return rounded, [Layer(weight.to(dtype), bias.to(dtype)), *layers[1:]]


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread: such small products do not gain from more."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
