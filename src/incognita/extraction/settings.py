"""How to run a model and which columns to record."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from incognita.containers.needs import ExtraOutput
from incognita.errors import InvalidDataError

OUTPUTS = "outputs"
LAYERS = "layers"
DEVICES = ("cpu", "cuda", "mps", "xpu")
_LONGEST_PROBLEM = 120
Precision = Literal["float32", "tf32", "bfloat16"]


@dataclass(frozen=True)
class Settings:
    """How the network is run.

    The batch size and the precision are part of the key of stored outputs, because the arithmetic
    may depend on them; the devices and the number of readers are not.

    Args:
        batch_size: Images per call of the network; by default 128 for a classifier and 1 for a
            detector, whose images rarely share one size.
        precision: "bfloat16" runs the network in half the bits; "tf32" is the fast float32 of
            NVIDIA's GPUs, with 10 bits behind the point. Recorded columns are float32.
        device: A torch device: "cpu", "cuda", "cuda:1", "mps", "xpu"; or several, separated by
            commas, with one process for each. "cuda" is every GPU that is visible.
        workers: Processes that read images and never hold the network; 0 or 1 reads in threads of
            the process that runs it. By default up to 16 with a GPU and long data sets, else none.
    """

    batch_size: int | None = None
    precision: Precision = "float32"
    device: str = "cpu"
    workers: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("workers", 0)):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidDataError(f"Expected {name} to be a whole number, got {value!r:.80}.")
            if value < least:
                raise InvalidDataError(f"Expected {name} of at least {least}, got {value}.")
        for device in self.devices:
            _check_device(device)
        if self.precision not in get_args(Precision):
            raise InvalidDataError(
                f"Expected precision {', '.join(get_args(Precision))}, got {self.precision!r}."
            )
        if self.precision == "tf32" and not self.is_cuda:
            raise InvalidDataError("Expected a CUDA device for precision tf32. Choose float32.")

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that run the network, one process each where there are several."""
        if not isinstance(self.device, str):
            return (self.device,)
        if self.device == "cuda" and torch.cuda.is_available() and torch.cuda.device_count() > 1:
            return tuple(f"cuda:{k}" for k in range(torch.cuda.device_count()))
        return tuple(name.strip() for name in self.device.split(","))

    @property
    def is_cuda(self) -> bool:
        """Whether the network runs on NVIDIA's GPUs."""
        return torch.device(self.devices[0]).type == "cuda"


def _check_device(name: object) -> None:
    if not isinstance(name, str | torch.device):
        raise InvalidDataError(f"Expected device to be a name such as cpu, got {name!r:.80}.")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidDataError(
            f"No device is called {name!r}. Choose cpu, cuda or cuda:1."
        ) from error
    if device.type not in DEVICES:
        raise InvalidDataError(
            f"Networks cannot be run on {name!r}. Choose a device of {', '.join(DEVICES)}."
        )
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidDataError(f"Device {name!r} needs a GPU, but torch finds none. Choose cpu.")
    try:
        (torch.ones(1, device=device) + 1).item()  # torch may know the name without a device
    except Exception as error:  # the error type depends on the kind of device
        problem = " ".join(str(error).split())[:_LONGEST_PROBLEM]
        raise InvalidDataError(
            f"torch cannot compute on device {name!r} here ({problem}). Choose cpu."
        ) from error


class ShardLayout(NamedTuple):
    """Images per shard and per call of the network.

    >>> layout = ShardLayout(512, 128)
    >>> layout.n_shards(0), layout.n_shards(512), layout.n_shards(513)
    (0, 1, 2)
    >>> layout.rows(1, 600)
    range(512, 600)
    """

    shard_size: int
    batch_size: int

    def n_shards(self, n_images: int) -> int:
        """Return the number of shards of a dataset."""
        return -(-n_images // self.shard_size)

    def rows(self, index: int, n_images: int) -> range:
        """Return the places of a shard's images in the dataset."""
        return range(index * self.shard_size, min((index + 1) * self.shard_size, n_images))


CLASSIFIER_LAYOUT = ShardLayout(512, 128)
# small shards: an image may have a hundred boxes, and a box thousands of numbers
DETECTOR_LAYOUT = ShardLayout(64, 1)


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
        """Return the sum, field by field."""
        return PassCount(*(a + b for a, b in zip(self, other, strict=True)))


@dataclass(frozen=True)
class FailedImage:
    """An image without a row, and the reason."""

    image_id: str
    reason: str


@dataclass(frozen=True)
class OutputRequest:
    """The column groups to record; each group is stored, found and recorded again on its own.

    >>> list(OutputRequest(layers=True))
    ['outputs', 'layers']
    """

    outputs: bool = True
    layers: bool = False
    extra_outputs: tuple[ExtraOutput, ...] = ()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the groups."""
        if self.outputs:
            yield OUTPUTS
        if self.layers:
            yield LAYERS
        yield from (extra.key for extra in self.extra_outputs)

    def only(self, groups: frozenset[str]) -> "OutputRequest":
        """Return a request for some of the groups."""
        return OutputRequest(
            self.outputs and OUTPUTS in groups,
            self.layers and LAYERS in groups,
            tuple(extra for extra in self.extra_outputs if extra.key in groups),
        )

    def named(self, groups: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return the columns of the extra outputs under `f"{extra.key}/{column}"`."""
        return {
            f"{extra.key}/{name}": column
            for extra in self.extra_outputs
            for name, column in groups[extra.key].items()
        }

    def check(self, *, name: str, layers: tuple[str, ...], of_boxes: bool) -> None:
        """Raise an error if a model that records these layers cannot give what is requested."""
        if self.layers and not layers:
            raise InvalidDataError(
                f"Layers were requested, but {name} records none. Name some when wrapping the "
                f"model."
            )
        for extra in self.extra_outputs:
            if extra.of_boxes != of_boxes:
                rows = ("images", "boxes") if of_boxes else ("boxes", "images")
                raise InvalidDataError(
                    f"{type(extra).__name__} is recorded for {rows[0]}, but the rows of {name} "
                    f"are {rows[1]}."
                )
            extra.check(name=name, layers=layers)


class ShardJob(NamedTuple):
    """A shard and the groups that are missing in it."""

    shard: int
    groups: frozenset[str]
