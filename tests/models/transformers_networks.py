"""Small detectors of transformers with random weights, wrapped, and called on two images."""

import functools
import json
from dataclasses import asdict

import numpy as np
import torch
from tests.models.networks import seeded

from incognita.models.detector import BoxFilter
from incognita.models.from_transformers.classifiers import transformers
from incognita.models.from_transformers.detectors import wrap_transformers_detector

N_CLASSES = 5
N_QUERIES = 30  # 150 pairs with a class: more than the 100 that Deformable DETR keeps
SIZE = {"height": 64, "width": 96}
SIDE = 64
SIZES = [(50, 70), (90, 40)]  # of the two images, as they were read
EVERYTHING = BoxFilter(score_threshold=0.0, max_per_image=1000, nms_iou=None)
TOKENS = torch.tensor([[98, 3, 99, 0], [98, 4, 5, 99], [98, 6, 99, 0]])

TRANSFORMER = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "num_queries": N_QUERIES,
    "num_labels": N_CLASSES,
}
_BACKBONE = {
    "embedding_size": 8,
    "hidden_sizes": [8, 12, 16, 32],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
}


def detr(**options):
    backbone = transformers.ResNetConfig(**_BACKBONE)
    config = transformers.DetrConfig(backbone_config=backbone, **TRANSFORMER | options)
    return _varied(transformers.DetrForObjectDetection, config)


def deformable(**options):
    backbone = transformers.ResNetConfig(**_BACKBONE)
    config = transformers.DeformableDetrConfig(backbone_config=backbone, **TRANSFORMER | options)
    return _varied(transformers.DeformableDetrForObjectDetection, config)


def two_stage():
    return deformable(two_stage=True, with_box_refine=True, two_stage_num_proposals=25)


def rt(version="RTDetr", **options):
    backbone = transformers.RTDetrResNetConfig(**_BACKBONE)
    widths = {"encoder_in_channels": [12, 16, 32], "encoder_hidden_dim": 32}
    widths |= {"decoder_in_channels": [32, 32, 32]}
    config = getattr(transformers, f"{version}Config")(
        backbone_config=backbone, num_denoising=0, **widths | TRANSFORMER | options
    )
    return _varied(getattr(transformers, f"{version}ForObjectDetection"), config)


def rt_v2():
    return rt("RTDetrV2")


def owl(version="Owlv2"):
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    small |= {"intermediate_size": 32}
    text = {"vocab_size": 100, "max_position_embeddings": 16}
    text |= {"bos_token_id": 98, "eos_token_id": 99}
    vision = {"image_size": SIDE, "patch_size": 16}
    config = getattr(transformers, f"{version}Config")(
        text_config=small | text, vision_config=small | vision, projection_dim=16
    )
    return _varied(getattr(transformers, f"{version}ForObjectDetection"), config)


def owl_vit():
    return owl("OwlViT")


NETWORKS = {
    "detr": detr,
    "deformable": deformable,
    "two-stage": two_stage,
    "rt-detr": rt,
    "rt-detr v2": rt_v2,
    "owlv2": owl,
    "owl-vit": owl_vit,
}
TEXT = ("owlv2", "owl-vit")
FIXED = tuple(name for name in NETWORKS if name not in TEXT)
PROCESSORS = {
    "detr": "DetrImageProcessor",
    "deformable": "DeformableDetrImageProcessor",
    "two-stage": "DeformableDetrImageProcessor",
    "rt-detr": "RTDetrImageProcessor",
    "rt-detr v2": "RTDetrImageProcessor",
    "owlv2": "Owlv2ImageProcessor",
    "owl-vit": "OwlViTImageProcessor",
}


def processor_of(family, **options):
    size = {"height": SIDE, "width": SIDE} if family in TEXT else SIZE
    return getattr(transformers, PROCESSORS[family])(**{"size": size} | options)


def tokenizer(folder):
    """Make a tokenizer that knows letters only: 27 tokens at the end of a word, 1 to 26 inside."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    inside = {letter: k for k, letter in enumerate(letters, 1)}
    last = {f"{letter}</w>": k for k, letter in enumerate(letters, 27)}
    special = {"<|pad|>": 0, "<|startoftext|>": 98, "<|endoftext|>": 99}
    (folder / "vocab.json").write_text(json.dumps(special | inside | last))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    files = (str(folder / name) for name in ("vocab.json", "merges.txt"))
    return transformers.CLIPTokenizer(*files, pad_token="<|pad|>", model_max_length=16)


@functools.cache
def network(family):
    return NETWORKS[family]()


def wrapped(family, module=None, **options):
    prompts = {"prompts": TOKENS} if family in TEXT else {}
    processor = {"processor": processor_of(family)}
    return wrap_transformers_detector(module or network(family), **processor | prompts | options)


def images():
    drawn = np.random.default_rng(0)
    return [drawn.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]


@functools.cache
def batch(family):
    """Two pictures of the size the network takes, whatever sizes they had."""
    height, width = (64, 64) if family in TEXT else (64, 96)
    drawn = torch.Generator().manual_seed(2)
    return torch.rand(2, 3, height, width, generator=drawn) * 2 - 1


@functools.cache
def outputs(family):
    """Return what the network gave when the detector called it."""
    given = []
    watch = network(family).register_forward_hook(lambda _, args, output: given.append(output))
    found.__wrapped__(family)
    watch.remove()
    return given[0]


@functools.cache
def found(family, layers=False, **rules):
    detector = wrapped(family, rules=BoxFilter(**asdict(EVERYTHING) | rules))
    with torch.no_grad():
        return detector.forward(batch(family), SIZES, layers=layers)


def assert_same(image, answer):
    boxes, scores, labels = answer
    torch.testing.assert_close(image.xyxy, boxes, rtol=0, atol=0)
    torch.testing.assert_close(image.confidence, scores, rtol=0, atol=0)
    torch.testing.assert_close(image.class_ids, labels, rtol=0, atol=0)


def own_outputs(module, batch):
    """Call the network as its documentation does: with a mask, and all texts for each image."""
    module = module.eval()
    with torch.no_grad():
        if hasattr(module, "class_head"):
            ids = torch.cat([TOKENS] * len(batch))
            return module(pixel_values=batch, input_ids=ids)
        mask = torch.ones(len(batch), *batch.shape[2:], dtype=torch.long)
        return module(pixel_values=batch, pixel_mask=mask)


def _varied(kind, config):
    """Move all weights, so that queries, images and classes differ as in a trained network."""
    module = seeded(kind, config)
    drawn = torch.Generator().manual_seed(1)
    steps = {"query_position": 1.0, "class_labels": 0.7, "class_embed": 0.3}
    is_owl = "Owl" in kind.__name__
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if is_owl and "_head." in name:  # drawn so large that every sigmoid is 0 or 1
                weight.mul_(0.3)
            step = next((steps[part] for part in steps if part in name), 0.1 if is_owl else 0.15)
            weight.add_(torch.randn(weight.shape, generator=drawn), alpha=step)
    return module.eval()
