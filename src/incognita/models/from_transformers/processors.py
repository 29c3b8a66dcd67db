"""Texts that tell an open-vocabulary detector which classes to look for."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from incognita.errors import InvalidDataError
from incognita.models.detector import HeadKind
from incognita.models.fingerprints import describe_callable
from incognita.models.from_transformers.families import Family
from incognita.registry import need
from incognita.shapes import Float, Int

transformers = need("transformers", extra="transformers")


@dataclass(frozen=True)
class ByProcessor:
    """An image processor of transformers, applied to one PIL image."""

    processor: Any

    def __call__(self, image: Image.Image) -> Tensor:
        """Give the pixels; padding that the network would have to be told of is refused."""
        given = self.processor(images=image, return_tensors="pt")
        mask = given.get("pixel_mask")
        if mask is not None and not mask.all():
            raise InvalidDataError(
                f"The image processor pads an image of {image.height} x {image.width} pixels to "
                f"{mask.shape[1]} x {mask.shape[2]}, but images are run without padding; set its "
                f"pad_size to None."
            )
        pixels: Tensor = given["pixel_values"][0]
        return pixels


def default_processor(family: Family, module: Any) -> Any:
    """Make the image processor of a family with the values transformers gives it.

    OWL-ViT and OWLv2 learned their positions and take no other size than their own.
    """
    kind = getattr(transformers, family.processor)
    if family.head_kind is not HeadKind.TEXT:
        return kind()
    side = module.config.vision_config.image_size
    return kind(size={"height": side, "width": side})


def describe_processor(processor: Any) -> str:
    """Name a processor and all its values; of a class of the user's own, its code counts too."""
    kind = type(processor)
    if kind.__module__.partition(".")[0] != "transformers":
        return describe_callable(ByProcessor(processor))
    values = json.dumps(processor.to_dict(), sort_keys=True, default=str)
    return f"{kind.__name__}({values})"


def pixel_std_of(processor: Any) -> Float[Tensor, "channels"]:
    """Give what a pixel between 0 and 1 is divided by; processors may rescale by another factor."""
    factor = (getattr(processor, "rescale_factor", None) or 1 / 255) if processor.do_rescale else 1
    stds = processor.image_std if processor.do_normalize else (1.0, 1.0, 1.0)
    return torch.tensor([float(std) / (255 * factor) for std in stds])


TEMPLATE = "a photo of a {}"  # as in the examples of OWL-ViT and OWLv2


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
                f"The prompts have shape {list(self.input_ids.shape)}, but token ids are "
                f"[classes, tokens] with a row for each class; tokenize one text per class."
            )
        if self.attention_mask is not None and self.attention_mask.shape != self.input_ids.shape:
            raise InvalidDataError(
                f"The attention mask of the prompts has shape {list(self.attention_mask.shape)}, "
                f"but their token ids {list(self.input_ids.shape)}; give what one call of the "
                f"tokenizer gave."
            )
        if not (self.input_ids[:, 0] > 0).all():
            raise InvalidDataError(
                "A row of the prompts begins with token 0, which says that there is no text; give "
                "one text per class."
            )

    def __len__(self) -> int:
        return len(self.input_ids)

    def arguments(self, n: int, device: torch.device) -> dict[str, Tensor]:
        """Give what the network takes beside n images: all texts, for each image."""
        tensors = {"input_ids": self.input_ids, "attention_mask": self.attention_mask}
        return {
            name: each.to(device).repeat(n, 1) for name, each in tensors.items() if each is not None
        }

    @property
    def fingerprint(self) -> str:
        """The sha256 of the tokens: other texts make another detector."""
        rows = [
            None if each is None else each.tolist()
            for each in (self.input_ids, self.attention_mask)
        ]
        return hashlib.sha256(repr(rows).encode()).hexdigest()


def make_prompts(
    given: Sequence[str] | Tensor | Mapping[str, Any], tokenizer: Any, *, n_tokens: int
) -> Prompts:
    """Tokenize one text per class, or take token ids as they are.

    Args:
        given: Texts; or `input_ids`; or these and `attention_mask`, as a tokenizer gives them.
        tokenizer: A tokenizer of transformers; None where no texts are given.
        n_tokens: The longest text that the network takes.
    """
    if isinstance(given, Tensor):
        return Prompts(given)
    if isinstance(given, Mapping):
        if given.get("input_ids") is None:
            raise InvalidDataError(
                f"The prompts have {', '.join(given) or 'nothing'}, but token ids are in "
                f"`input_ids`; give what the tokenizer gave."
            )
        return Prompts(given["input_ids"], given.get("attention_mask"))
    if isinstance(given, str) or not given:
        raise InvalidDataError(f"{given!r} came as prompts; give a list with one text per class.")
    if tokenizer is None:
        raise InvalidDataError(
            "Prompts are texts, but the processor has no tokenizer; give one that has (such as an "
            "Owlv2Processor) with processor=, or token ids with prompts=."
        )
    texts = list(given)
    lengths = [len(each) for each in tokenizer(texts)["input_ids"]]
    if max(lengths) > n_tokens:
        longest = texts[lengths.index(max(lengths))]
        raise InvalidDataError(
            f"The prompt {longest!r} has {max(lengths)} tokens, but the network takes {n_tokens} "
            f"at most; shorten it."
        )
    tokens = tokenizer(texts, padding="max_length", max_length=n_tokens, return_tensors="pt")
    return Prompts(tokens["input_ids"], tokens.get("attention_mask"))


@contextmanager
def texts_embedded_once(owl: Any, n_prompts: int) -> Iterator[None]:
    """Let the text tower of OWL-ViT or OWLv2 see each text once per call, not once per image.

    The network takes all texts again for each image. What its text tower is given is cut to the
    first image's, and the embeddings are repeated behind it, where they cost nothing.
    """
    n_images = 1

    def cut(_: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        nonlocal n_images
        n_images = len(kwargs["input_ids"]) // n_prompts
        names = ("input_ids", "attention_mask")
        tensors = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
        return args, kwargs | {name: each[:n_prompts] for name, each in tensors.items()}

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
