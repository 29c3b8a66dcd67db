"""What one extraction is asked for, and what it writes down for a shard."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from incognita.containers.needs import ExtraOutput
from incognita.errors import InvalidDataError

OUTPUTS = "outputs"
LAYERS = "layers"
DEVICES = ("cpu", "cuda", "mps", "xpu")
_LONGEST_PROBLEM = 120


@dataclass(frozen=True)
class Settings:
    """How the network is run.

    The batch size and the precision go into the key of stored outputs, because arithmetic may
    depend on them; where and by how many processes it is done does not.

    Args:
        batch_size: Images per call of the network; by default 128 of a classifier and 1 of a
            detector, whose images seldom have one size.
        precision: "bfloat16" runs matrix work in half the bits; what is recorded is float32.
        device: As torch names it: "cpu", "cuda", "cuda:1", "mps", "xpu".
        workers: Local processes; 1 stands for this one.
    """

    batch_size: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"
    workers: int = 1

    def __post_init__(self) -> None:
        for name in ("batch_size", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidDataError(f"{name} must be at least 1, but {value} came.")
        _check_device(self.device)
        if self.precision not in ("float32", "bfloat16"):
            raise InvalidDataError(
                f"precision must be float32 or bfloat16, but {self.precision!r} came."
            )


class ShardLayout(NamedTuple):
    """How a kind of model is run by default: images per shard and per call."""

    shard_size: int
    batch_size: int


CLASSIFIER_UNIT = ShardLayout(512, 128)
DETECTOR_UNIT = ShardLayout(
    64, 1
)  # a box may carry thousands of numbers, and an image a hundred boxes


def _check_device(name: str) -> None:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidDataError(
            f"No device is called {name!r}; choose cpu, cuda or cuda:1."
        ) from error
    if device.type not in DEVICES:
        raise InvalidDataError(
            f"Networks cannot be run on {name!r}; choose a device of {', '.join(DEVICES)}."
        )
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidDataError(f"{name} was asked for, but torch finds no GPU here; choose cpu.")
    try:
        (torch.ones(1, device=device) + 1).item()  # a name may be known and nothing behind it
    except Exception as error:  # each kind of device fails in its own way
        problem = " ".join(str(error).split())[:_LONGEST_PROBLEM]
        raise InvalidDataError(
            f"{name} was asked for, but torch cannot compute on it here ({problem}); choose cpu."
        ) from error


class PassCount(NamedTuple):
    """How often the network was run.

    `images` went through it, with `forward` and `backward` passes summed over them.

    >>> PassCount(2, 4, 2).plus(PassCount(1, 1, 0))
    PassCount(images=3, forward=5, backward=2)
    """

    images: int = 0
    forward: int = 0
    backward: int = 0

    def plus(self, other: "PassCount") -> "PassCount":
        """Give the sum, field by field."""
        return PassCount(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class BrokenImage:
    """An image that has no row, and why."""

    image_id: str
    reason: str


@dataclass(frozen=True)
class OutputRequest:
    """The column groups to record: each is stored, found and made anew on its own.

    >>> list(OutputRequest(layers=True))
    ['outputs', 'layers']
    """

    outputs: bool = True
    layers: bool = False
    extra_outputs: tuple[ExtraOutput, ...] = ()

    def __iter__(self) -> Iterator[str]:
        """Give the names of the groups."""
        if self.outputs:
            yield OUTPUTS
        if self.layers:
            yield LAYERS
        yield from (extra.key for extra in self.extra_outputs)

    def only(self, groups: frozenset[str]) -> "OutputRequest":
        """Keep some of the groups."""
        return OutputRequest(
            self.outputs and OUTPUTS in groups,
            self.layers and LAYERS in groups,
            tuple(extra for extra in self.extra_outputs if extra.key in groups),
        )


class ShardJob(NamedTuple):
    """A shard of which some groups are missing."""

    shard: int
    groups: frozenset[str]


@dataclass(frozen=True, eq=False)
class ShardGroup:
    """One column group of one shard.

    Args:
        rows: Places in the dataset of the images that have a row, rising.
        columns: Their rows; a group of which every image is broken has no column.
        failed_images: Why the image at a place has no row.
        counts: How many rows each image has in the columns; None where each has one.
    """

    rows: tuple[int, ...]
    columns: Mapping[str, Tensor]
    failed_images: Mapping[int, str] = field(default_factory=dict)
    counts: tuple[int, ...] | None = None
