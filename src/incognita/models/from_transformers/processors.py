"""Image processors of transformers as preprocessing, and text prompts of detectors."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from incognita.errors import InvalidDataError, MissingDataError
from incognita.models.fingerprints import describe_callable
from incognita.models.preprocessing import Interpolation, Preprocessing
from incognita.registry import need
from incognita.shapes import Float, Int, Shaped

transformers = need("transformers", extra="transformers")

TEMPLATE = "a photo of a {}"  # as in the examples of OWL-ViT and OWLv2

# processors that only resize, crop, rescale and normalize
_PLAIN = {"Beit", "Bit", "CLIP", "ConvNext", "DeiT", "Siglip", "ViT"}
_FILTERS: tuple[Interpolation, ...] = (  # by their numbers in PIL
    "nearest",
    "lanczos",
    "bilinear",
    "bicubic",
    "box",
    "hamming",
)
_SQUASHED_FROM = 384  # from this side on, the processor of ConvNeXt distorts instead of cropping


@dataclass(frozen=True)
class FromProcessor:
    """An image processor as preprocessing, for processors that `Preprocessing` cannot express."""

    processor: Any

    def __call__(self, image: Shaped[np.ndarray, "_ _ 3"]) -> Tensor:
        """Apply the processor to the image."""
        batch = self.processor(images=Image.fromarray(image), return_tensors="pt")
        return batch["pixel_values"][0]  # type: ignore[no-any-return]


def preprocessing_of(source: str | Path | Any) -> Preprocessing | FromProcessor:
    """Return the preprocessing of an image processor, or of the one in a folder.

    Images are resized with PIL, as when the models were trained; the processors of transformers 5
    use torchvision unless `backend="pil"`, which may change a pixel by one level.
    """
    processor = load_image_processor(Path(source)) if isinstance(source, str | Path) else source
    family = type(processor).__name__.partition("ImageProcessor")[0]
    factor = getattr(processor, "rescale_factor", None) or 0.0
    is_usual = processor.do_rescale and abs(255 * factor - 1) < 1e-6
    size = _entries(getattr(processor, "size", None))
    if family not in _PLAIN or not is_usual or "longest_edge" in size or processor.do_pad:
        return FromProcessor(processor)
    resize, crop = _geometry(processor, family, size)
    normalizes = processor.do_normalize
    return Preprocessing(
        size=resize,
        crop=crop,
        mean=tuple(processor.image_mean) if normalizes else (0.0,) * 3,
        std=tuple(processor.image_std) if normalizes else (1.0,) * 3,
        interpolation=_FILTERS[int(processor.resample or 2)],
        crop_corner="smaller",
    )


def _geometry(
    processor: Any, family: str, size: Mapping[str, int]
) -> tuple[int | tuple[int, int] | None, tuple[int, int] | None]:
    entries = _entries(getattr(processor, "crop_size", None))
    crop = (entries["height"], entries["width"]) if processor.do_center_crop else None
    if not processor.do_resize:
        return None, crop
    if "shortest_edge" not in size:
        return (size["height"], size["width"]), crop
    shortest = size["shortest_edge"]
    if family != "ConvNext":
        return shortest, crop
    if shortest >= _SQUASHED_FROM:
        return (shortest, shortest), crop
    return int(shortest / processor.crop_pct), (shortest, shortest)


def _entries(size: Any) -> dict[str, int]:
    """Read a size of a processor: a mapping in every version, with empty entries in some."""
    return {} if size is None else {key: side for key, side in dict(size).items() if side}


def load_image_processor(path: Path) -> Any:
    """Load the image processor in a folder."""
    if not (path / "preprocessor_config.json").is_file():
        raise MissingDataError(
            f"{path} has no preprocessor_config.json, so the preprocessing is not known; save the "
            f"image processor there, or pass preprocess=."
        )
    return transformers.AutoImageProcessor.from_pretrained(path, local_files_only=True)


def load_text_processor(path: Path) -> Any:
    """Load the image processor with a tokenizer in a folder."""
    try:
        return transformers.AutoProcessor.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        raise MissingDataError(
            f"{path} has no image processor with a tokenizer ({str(error).splitlines()[0]}); save "
            f"the processor of the model there."
        ) from error


@dataclass(frozen=True)
class ByProcessor:
    """An image processor of transformers, applied to one PIL image."""

    processor: Any

    def __call__(self, image: Image.Image) -> Tensor:
        """Return the pixels; padding, which would need a mask, is refused."""
        batch = self.processor(images=image, return_tensors="pt")
        mask = batch.get("pixel_mask")
        if mask is not None and not mask.all():
            raise InvalidDataError(
                f"The image processor pads an image of {image.height} x {image.width} pixels to "
                f"{mask.shape[1]} x {mask.shape[2]}, but padding is not supported; set its "
                f"pad_size to None."
            )
        pixels: Tensor = batch["pixel_values"][0]
        return pixels


def describe_processor(processor: Any) -> str:
    """Describe a processor by its class and values; for a user's class also by its code."""
    kind = type(processor)
    if kind.__module__.partition(".")[0] != "transformers":
        return describe_callable(ByProcessor(processor))
    values = json.dumps(processor.to_dict(), sort_keys=True, default=str)
    return f"{kind.__name__}({values})"


def pixel_std_of(processor: Any) -> Float[Tensor, "channels"]:
    """Return the divisor of pixels between 0 and 1, for any rescale factor of the processor."""
    factor = (getattr(processor, "rescale_factor", None) or 1 / 255) if processor.do_rescale else 1
    stds = processor.image_std if processor.do_normalize else (1.0, 1.0, 1.0)
    return torch.tensor([float(std) / (255 * factor) for std in stds])


@dataclass(frozen=True, eq=False)
class Prompts:
    """One tokenized text per class.

    >>> prompts = Prompts(torch.tensor([[7, 1], [7, 2]]))
    >>> len(prompts), prompts.arguments(2, torch.device("cpu"))["input_ids"].tolist()
    (2, [[7, 1], [7, 2], [7, 1], [7, 2]])
    """

    input_ids: Int[Tensor, "classes tokens"]
    attention_mask: Int[Tensor, "classes tokens"] | None = None

    def __post_init__(self) -> None:
        if self.input_ids.ndim != 2 or not len(self.input_ids):
            raise InvalidDataError(
                f"Expected token ids [classes, tokens] of at least one class, got prompts of shape "
                f"{list(self.input_ids.shape)}; tokenize one text per class."
            )
        if self.attention_mask is not None and self.attention_mask.shape != self.input_ids.shape:
            raise InvalidDataError(
                f"The attention mask of the prompts has shape {list(self.attention_mask.shape)}, "
                f"but their token ids {list(self.input_ids.shape)}; pass the output of one call of "
                f"the tokenizer."
            )
        if not (self.input_ids[:, 0] > 0).all():
            raise InvalidDataError(
                "A row of the prompts begins with token 0, which means an empty text; pass one "
                "text per class."
            )

    def __len__(self) -> int:
        return len(self.input_ids)

    def arguments(self, n: int, device: torch.device) -> dict[str, Tensor]:
        """Return the text arguments of the network for n images: all texts for every image."""
        tensors = {"input_ids": self.input_ids, "attention_mask": self.attention_mask}
        return {
            name: tensor.to(device).repeat(n, 1)
            for name, tensor in tensors.items()
            if tensor is not None
        }

    @property
    def fingerprint(self) -> str:
        """The sha256 of the tokens: a detector with other texts is another model."""
        rows = [
            None if tensor is None else tensor.tolist()
            for tensor in (self.input_ids, self.attention_mask)
        ]
        return hashlib.sha256(repr(rows).encode()).hexdigest()


def make_prompts(
    given: Sequence[str] | Tensor | Mapping[str, Any], tokenizer: Any, *, n_tokens: int
) -> Prompts:
    """Tokenize one text per class; token ids are used unchanged.

    Args:
        given: Texts, or `input_ids`, or both `input_ids` and `attention_mask` of a tokenizer.
        tokenizer: A tokenizer of transformers; None if `given` are token ids.
        n_tokens: The longest text that the network accepts.
    """
    if isinstance(given, Tensor):
        return Prompts(given)
    if isinstance(given, Mapping):
        if given.get("input_ids") is None:
            raise InvalidDataError(
                f"Expected prompts with `input_ids`, got {', '.join(given) or 'nothing'}; pass the "
                f"output of the tokenizer."
            )
        return Prompts(given["input_ids"], given.get("attention_mask"))
    if isinstance(given, str) or not given:
        raise InvalidDataError(
            f"Expected a list with one text per class as prompts, got {given!r}."
        )
    if tokenizer is None:
        raise InvalidDataError(
            "Prompts are texts, but the processor has no tokenizer; pass one that has, such as an "
            "Owlv2Processor, with processor=, or token ids with prompts=."
        )
    texts = list(given)
    lengths = [len(tokens) for tokens in tokenizer(texts)["input_ids"]]
    if max(lengths) > n_tokens:
        longest = texts[lengths.index(max(lengths))]
        raise InvalidDataError(
            f"The prompt {longest!r} has {max(lengths)} tokens, but the network accepts at most "
            f"{n_tokens}; shorten it."
        )
    tokens = tokenizer(texts, padding="max_length", max_length=n_tokens, return_tensors="pt")
    return Prompts(tokens["input_ids"], tokens.get("attention_mask"))


@contextmanager
def texts_embedded_once(owl: Any, n_prompts: int) -> Iterator[None]:
    """Embed the texts of OWL-ViT or OWLv2 once per call instead of once per image.

    The network repeats all texts for every image. The input of its text tower is cut to those of
    the first image, and the embeddings are repeated afterwards.
    """
    n_images = 1

    def cut(_: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        nonlocal n_images
        n_images = len(kwargs["input_ids"]) // n_prompts
        names = ("input_ids", "attention_mask")
        tensors = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
        return args, kwargs | {name: value[:n_prompts] for name, value in tensors.items()}

    def repeat(_: Any, args: Any, embeddings: Tensor) -> Tensor:
        return embeddings.repeat(n_images, 1)

    handles = (
        owl.text_model.register_forward_pre_hook(cut, with_kwargs=True),
        owl.text_projection.register_forward_hook(repeat),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
