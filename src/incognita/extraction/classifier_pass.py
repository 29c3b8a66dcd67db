"""The pass over a classifier: the columns of a batch in as few runs of the network as possible.

One forward pass serves logits, features, pooled layers and every extra output of them. Extra
outputs that step the input share its graph: one backward pass per objective, one forward pass per
step.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from incognita.containers import ClassifierOutputs, Dataset, ExtraOutput, Head
from incognita.extraction.feature_maps import pooled
from incognita.extraction.loading import Inputs
from incognita.extraction.settings import (
    CLASSIFIER_LAYOUT,
    LAYERS,
    OUTPUTS,
    OutputRequest,
    Settings,
    ShardLayout,
)
from incognita.extraction.shards import ModelPass
from incognita.extraction.store import Columns, JoinedShards
from incognita.models.classifier import Classifier, Forward


class ClassifierPass(ModelPass):
    """Runs a classifier.

    The caller's own module runs, so that hooks on it see every call and a large one is not held
    twice; in bfloat16 it is a copy. Tensors are channels-last. In bfloat16 the last layer is
    computed from the recorded features in float32: it costs nothing, and logits of eight bits
    would tie.
    """

    def __init__(self, classifier: Classifier, settings: Settings):
        self._is_half = settings.precision == "bfloat16"
        self._classifier = _copied(classifier) if self._is_half else classifier
        module = self._classifier.module
        super().__init__(module, classifier, settings)
        module.to(memory_format=torch.channels_last)
        if self._is_half:
            module.bfloat16()
        self._head = None if classifier.head is None else _moved(classifier.head, self.device)
        self.layers = tuple(classifier.layers)

    def record(
        self, inputs: Inputs, request: OutputRequest
    ) -> tuple[dict[str, Columns], tuple[int, ...] | None]:
        """Run the network on a batch; return the columns by group, one row per image."""
        assert isinstance(inputs, Tensor)
        self.count(images=len(inputs))
        inputs = self.on_device(inputs)
        batch = ClassifierBatch(self, inputs, request.extra_outputs)
        groups: dict[str, Columns] = {}
        with torch.inference_mode():
            if request.outputs:
                groups[OUTPUTS] = {"logits": batch.base.logits}
                if batch.base.features is not None:
                    groups[OUTPUTS] = {**groups[OUTPUTS], "features": batch.base.features}
            if request.layers:
                groups[LAYERS] = {name: pooled(m) for name, m in batch.base.maps.items()}
            for extra in request.extra_outputs:
                groups[extra.key] = extra.record(batch)
        return groups, None

    def forward(self, inputs: Tensor, *, replace_map: Any = None) -> Forward:
        """Call the network once; gradients are followed where the caller allows them."""
        self.count(forward=len(inputs))
        if not self._is_half:
            return self._classifier.forward(inputs, replace_map=replace_map)
        out = self._classifier.forward(inputs.bfloat16(), replace_map=replace_map)
        features = None if out.features is None else out.features.float()
        numerators = None if out.numerators is None else out.numerators.float()
        logits = out.logits.float()
        if features is not None and self._head is not None:
            logits = self._head(features)
        return Forward(logits, features, out.maps, numerators)


class ClassifierBatch:
    """A batch of images and its outputs, from which an extra output computes its columns.

    Args:
        model: The running classifier.
        inputs: Preprocessed images [n, channels, height, width].
        extra_outputs: All that are recorded of this batch; gradients are computed for those with a
            `gradient_key`.
    """

    def __init__(
        self, model: ClassifierPass, inputs: Tensor, extra_outputs: Sequence[ExtraOutput] = ()
    ):
        self.inputs, self.layers, self.pixel_std = inputs, model.layers, model.pixel_std
        self._model = model
        followed = [extra for extra in extra_outputs if extra.gradient_key is not None]
        if followed:
            with torch.inference_mode(mode=False), torch.enable_grad():
                watched = inputs.detach().requires_grad_()
                base = model.forward(watched)
                self._gradients = model.gradients(followed, base, watched)
            self.base = _detached(base)  # the graph is large, and not needed any more

    @cached_property
    def base(self) -> Forward:
        """Outputs of the plain forward pass, which runs when they are first used."""
        return self.forward(self.inputs)

    def gradient(self, extra: ExtraOutput) -> Tensor:
        """Return the gradient of an extra output's objective with respect to the inputs."""
        return self._gradients[extra.gradient_key]

    def forward(self, inputs: Tensor, *, replace_map: Any = None) -> Forward:
        """Run the network again, on other inputs or with the map of a layer replaced.

        `replace_map` is a pair of a layer's name and a function of its map.
        """
        return self._model.forward(inputs, replace_map=replace_map)


def _copied(classifier: Classifier) -> Classifier:
    """Copy a classifier attribute by attribute: its `__reduce__` may be made for processes."""
    copy: Classifier = object.__new__(type(classifier))
    vars(copy).update(deepcopy(vars(classifier), {id(classifier): copy}))
    return copy


def _moved(head: Head, device: torch.device) -> Head:
    return Head(head.weight.to(device, torch.float32), head.bias.to(device, torch.float32))


def _detached(base: Forward) -> Forward:
    return Forward(
        base.logits.detach(),
        None if base.features is None else base.features.detach(),
        {name: layer_map.detach() for name, layer_map in base.maps.items()},
        None if base.numerators is None else base.numerators.detach(),
    )


def identity_of_classifier(classifier: Classifier) -> dict[str, Any]:
    """Return everything about a classifier that could change an output."""
    return {
        "weights_hash": classifier.weights_hash,
        "preprocessing": classifier.preprocessing,
        "pixel_std": classifier.pixel_std.tolist(),
        "layers": list(classifier.layers),
    }


@dataclass(frozen=True, eq=False)
class ClassifierExtraction:
    """Extraction from a classifier: one row per image."""

    model: Classifier
    layout: ClassVar[ShardLayout] = CLASSIFIER_LAYOUT

    def check(self, request: OutputRequest, settings: Settings) -> None:
        """Raise an error if the classifier cannot give what is requested."""
        layers = tuple(self.model.layers)
        request.check(name=self.model.name, layers=layers, of_boxes=False)

    def identity(self) -> dict[str, Any]:
        """Return everything about the classifier that could change an output."""
        return identity_of_classifier(self.model)

    def start(self, settings: Settings) -> ClassifierPass:
        """Prepare the classifier for running."""
        return ClassifierPass(self.model, settings)

    def outputs(
        self, dataset: Dataset, request: OutputRequest, joined: JoinedShards
    ) -> ClassifierOutputs:
        """Build the outputs of all images that have a row."""
        if not joined.rows:
            return ClassifierOutputs.empty(len(self.model.class_names), self.model.head)
        rows = list(joined.rows)
        labels = None if dataset.labels is None else torch.as_tensor(dataset.labels[rows]).long()
        return ClassifierOutputs(
            tuple(dataset.image_ids[row] for row in rows),
            joined.columns[OUTPUTS]["logits"],
            joined.columns[OUTPUTS].get("features"),
            labels,
            self.model.head,
            joined.columns.get(LAYERS),
            request.named(joined.columns) or None,
        )
