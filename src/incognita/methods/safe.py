"""SAFE: a network trained to tell shortcut layers of clean boxes from perturbed ones."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from incognita.containers.needs import ExtraOutput, Needs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import PerturbedLayers
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
from incognita.methods.numerics.rows import by_chunk, chunks
from incognita.methods.softmax import check_positive
from incognita.shapes import Float, Int

PREFIX = "shortcut/"
_PAIRS = 128  # clean boxes in a batch, and as many perturbed copies
_SHARE_HELD_OUT = 5  # one image in five, as in the authors' code
_ROWS = 512  # scored at once


@dataclass(eq=False)
class SAFE(Method):
    r"""SAFE: a classifier of clean and perturbed boxes by shortcut layers (Wilson et al., 2023).

    $$ s(x) = D(z(x)), \qquad \min_D \; E[\operatorname{softplus}(D(z))]
       + E[\operatorname{softplus}(-D(z'))] $$

    with z the maps of the shortcut layers inside the box, pooled, side by side and standardized by
    known training boxes, z' those of the same box when the image was moved by `epsilon` against
    the detector's own labels (FGSM), and D a perceptron before its sigmoid (which would tie the
    scores). Wilson et al., SAFE: Sensitivity-Aware Features for Out-of-Distribution Object
    Detection, ICCV 2023: shortcuts with batch normalization are the most sensitive layers, so the
    perturbed copies stand in for unknown objects. epsilon = 8 / 255, five epochs and one
    image in five held out are the authors'. Only fitting needs the perturbed copies.

    Departures: the paper's text has a multilayer perceptron; the authors' code stacks three linear
    layers without any non-linearity, which is one linear layer. Here two hidden layers of `width`
    and half of it have rectified units (the authors' are half and a quarter as wide as the input:
    with 3840 channels 200 times the products of 128 and 64) and no dropout; Adam with a rate of
    1e-3 takes the place of SGD, batches hold 128 pairs of boxes instead of all boxes of 32 images,
    and inputs are divided by their standard deviation, not only centered. The epoch of the lowest
    loss on held-out boxes is kept; the authors' code keeps one by comparing the training loss with
    an earlier held-out loss. At most `rows` boxes, drawn once.

    Args:
        epsilon: Size of the step, in pixels between 0 and 1.
        epochs: Maximum number of passes over the training boxes.
        width: Units of the first hidden layer.
        learning_rate: Learning rate of Adam.
        rows: Maximum number of known boxes to train on.
        seed: Seed of weights, order, drawn boxes and held-out images.

    >>> from incognita import ClassifierOutputs
    >>> clean = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> copies = {f"{PerturbedLayers().key}/shortcut/1": clean + 2.0}
    >>> known = ClassifierOutputs(
    ...     tuple(range(200)),
    ...     torch.zeros(200, 2),
    ...     layers={"shortcut/1": clean},
    ...     extra_outputs=copies,
    ... )
    >>> moved = ClassifierOutputs(
    ...     ("a",), torch.zeros(1, 2), layers={"shortcut/1": torch.full((1, 3), 2.0)}
    ... )
    >>> method = SAFE().fit(known)
    >>> bool(method.score(moved) > method.score(known).median())
    True
    """

    epsilon: int | float = 8 / 255
    epochs: int = 5
    width: int = 128
    learning_rate: int | float = 1e-3
    rows: int = 20_000
    seed: int = 0
    needs: ClassVar[Needs] = Needs.SHORTCUTS | Needs.KNOWN
    invalidates: ClassVar[Mapping[str, Refit]] = {
        "epsilon": Refit.STATISTICS,
        "epochs": Refit.STATISTICS,
        "width": Refit.STATISTICS,
        "learning_rate": Refit.STATISTICS,
        "rows": Refit.STATISTICS,
        "seed": Refit.STATISTICS,
    }

    def __post_init__(self) -> None:
        check_positive(
            self.title,
            epsilon=self.epsilon,
            epochs=self.epochs,
            width=self.width,
            learning_rate=self.learning_rate,
            rows=self.rows,
        )

    def extra_outputs_to_fit(self, part: str) -> tuple[ExtraOutput, ...]:
        return (PerturbedLayers(float(self.epsilon)),) if part == "known" else ()

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        clean = {n: t for n, t in known.layers.items() if n.startswith(PREFIX)}
        moved = self._perturbed(known, tuple(clean))
        rng = torch.Generator().manual_seed(self.seed)
        drawn = torch.randperm(len(known), generator=rng)[: self.rows].sort().values
        moments = {n: _moments((clean[n], moved[n]), drawn) for n in clean}
        self.mean_ = {name: mean for name, (mean, _) in moments.items()}
        self.scale_ = {name: scale for name, (_, scale) in moments.items()}
        pairs = _Pairs(self._side_by_side(clean), self._side_by_side(moved))
        training, held_out = _split(known.image_ids, drawn, rng)
        with torch.inference_mode(False), torch.enable_grad(), one_thread():
            self._train(pairs, training, held_out, rng)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        tables = [rows.layer(name) for name in self.mean_]
        device = tables[0].device
        mean, scale = (
            torch.cat(tuple(moments.values())).to(device) for moments in (self.mean_, self.scale_)
        )
        mean, layers = standardizing(layers_of(self.network_, device), mean, scale)

        def discriminate(*parts: Tensor) -> Tensor:
            wide, first = mean.new_empty(len(parts[0]), len(mean)), 0
            for part in parts:
                place = slice(first, first + part.shape[1])
                torch.sub(part.to(mean.dtype), mean[place], out=wide[:, place])
                first += part.shape[1]
            return apply_layers(layers, wide).squeeze(1)

        return by_chunk(discriminate, *tables, rows=_ROWS)

    def _train(
        self,
        pairs: "_Pairs",
        training: Int[Tensor, "training"],
        held_out: Int[Tensor, "held_out"],
        rng: torch.Generator,
    ) -> None:
        """Train for all epochs and keep the network of the one with the lowest held-out loss."""
        like = next(iter(self.mean_.values())).float()
        n_channels = sum(len(mean) for mean in self.mean_.values())
        network = new_perceptron((n_channels, self.width, max(1, self.width // 2), 1), like, rng)
        step = Adam(network, self.learning_rate)
        self.held_out_loss_ = math.inf
        for epoch in range(1, self.epochs + 1):
            order = training[torch.randperm(len(training), generator=rng)]
            for (index,) in chunks(order, rows=_PAIRS):
                step.down(pairs.loss(network, index))
            with torch.no_grad():
                loss = pairs.mean_loss(network, held_out)
            if loss < self.held_out_loss_:
                self.held_out_loss_, self.epoch_ = loss, epoch
                self.network_ = tensors_of(network)

    def _perturbed(self, known: Rows, names: Sequence[str]) -> dict[str, Tensor]:
        (extra,) = self.extra_outputs_to_fit("known")
        recorded = known.outputs.extra_outputs or {}
        columns = {name: recorded.get(f"{extra.key}/{name}") for name in names}
        missing = [name for name, column in columns.items() if column is None]
        if missing:
            raise InvalidDataError(
                f"SAFE learns from perturbed copies of known boxes, but the known outputs do not "
                f"hold {extra.key}/{missing[0]}; extract them with "
                f"extra_outputs=method.extra_outputs_to_fit('known')."
            )
        return {name: column for name, column in columns.items() if column is not None}

    def _side_by_side(self, tables: Mapping[str, Tensor]) -> "_SideBySide":
        return _SideBySide(
            tuple(tables.values()),
            tuple(self.mean_[name] for name in tables),
            tuple(self.scale_[name] for name in tables),
        )


@dataclass(frozen=True, eq=False)
class _SideBySide:
    """Layers as one table, built a few rows at a time: the whole would be large."""

    tables: tuple[Tensor, ...]
    means: tuple[Tensor, ...]
    scales: tuple[Tensor, ...]

    def rows(self, index: Int[Tensor, "n"]) -> Float[Tensor, "n channels"]:
        """Return some rows, standardized, in float32: enough for training."""
        columns = zip(self.tables, self.means, self.scales, strict=True)
        return torch.cat(
            [
                (table[index.to(table.device)].float() - mean.to(table.device, torch.float32)).div_(
                    scale.to(table.device, torch.float32)
                )
                for table, mean, scale in columns
            ],
            dim=1,
        )


class _Pairs(NamedTuple):
    """Boxes in the clean image, and in the perturbed one."""

    clean: _SideBySide
    moved: _SideBySide

    def loss(self, network: Sequence[Layer], index: Int[Tensor, "n"]) -> Tensor:
        both = torch.cat([self.clean.rows(index), self.moved.rows(index)])
        of_clean, of_moved = apply_layers(network, both).squeeze(1).chunk(2)
        return softplus(of_clean).mean() + softplus(-of_moved).mean()

    def mean_loss(self, network: Sequence[Layer], index: Int[Tensor, "n"]) -> float:
        parts = [self.loss(network, part) * len(part) for (part,) in chunks(index, rows=_ROWS)]
        return float(torch.stack(parts).sum()) / len(index)


def _moments(tables: Sequence[Tensor], index: Int[Tensor, "n"]) -> tuple[Tensor, Tensor]:
    """Compute mean and standard deviation of each column over the rows of all tables, in float64.

    A column whose variation is below the resolution of float32 gets a deviation of one.
    """
    n = len(index) * len(tables)
    mean, variance = (
        tables[0].new_zeros(tables[0].shape[1], dtype=torch.float64) for _ in range(2)
    )
    for rows in _some_rows(tables, index):
        mean += rows.sum(dim=0) / n
    for rows in _some_rows(tables, index):
        variance += (rows - mean).square_().sum(dim=0) / n
    varies = variance > torch.finfo(torch.float64).eps * mean.square()
    return mean, torch.where(varies, variance, 1.0).sqrt()


def _some_rows(tables: Sequence[Tensor], index: Int[Tensor, "n"]) -> Iterator[Tensor]:
    for (part,) in chunks(index, rows=_ROWS):
        for table in tables:
            yield table[part.to(table.device)].double()


def _split(
    row_ids: Sequence[Any], drawn: Int[Tensor, "n"], rng: torch.Generator
) -> tuple[Int[Tensor, "training"], Int[Tensor, "held_out"]]:
    """Split the rows into training and held-out ones, whole images at a time.

    Boxes of an image share its perturbation; the box `a#2` is one of image `a`. Where there are
    too few images to hold one out, the training rows serve as both.
    """
    images = [str(row_ids[k]).rsplit("#", 1)[0] for k in drawn.tolist()]
    names = list(dict.fromkeys(images))
    order = torch.randperm(len(names), generator=rng).tolist()
    held_out = {names[k] for k in order[: len(names) // _SHARE_HELD_OUT]}
    is_held_out = torch.tensor([image in held_out for image in images])
    return (drawn[~is_held_out], drawn[is_held_out]) if held_out else (drawn, drawn)
