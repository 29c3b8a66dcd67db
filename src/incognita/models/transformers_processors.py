"""Image processors of transformers as the preprocessing of a detector."""

import json
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
from incognita.shapes import Float

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
