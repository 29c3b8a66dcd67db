"""A classifier made ready to be run: on its device, in its precision, counting its passes."""

from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from incognita.containers.outputs import Head
from incognita.extraction.module_state import exact_on, restoring
from incognita.extraction.settings import PassCount, Settings
from incognita.models.classifier import Classifier, Forward


class Network:
    """Runs a classifier; what was changed for that is changed back by `close`.

    The caller's own module runs, so that hooks on it see every call and a large one is not held
    twice; in bfloat16 it is a copy. Channels stand last in memory (0.8 x the time of ResNet-18 on a
    CPU, the same numbers in every call). In bfloat16 the last layer is computed from the recorded
    features in float32: it costs nothing, and logits of eight bits would tie.
    """

    def __init__(self, classifier: Classifier, settings: Settings):
        self.device = torch.device(settings.device)
        self._is_half = settings.precision == "bfloat16"
        self._classifier = _copied(classifier) if self._is_half else classifier
        module = self._classifier.module
        self._restore = restoring(module)
        module.eval().requires_grad_(False)
        module.to(self.device, torch.bfloat16 if self._is_half else None)
        module.to(memory_format=torch.channels_last)
        self._head = None if classifier.head is None else _moved(classifier.head, self.device)
        self.layers = tuple(classifier.layers)
        self.pixel_std = classifier.pixel_std.to(self.device, torch.float32).view(1, -1, 1, 1)
        self.passes = PassCount()

    def forward(self, inputs: Tensor, *, replace_map: Any = None) -> Forward:
        """Call the network once; gradients are followed where the caller allows them."""
        self.passes = self.passes.plus(PassCount(forward=len(inputs)))
        if not self._is_half:
            return self._classifier.forward(inputs, replace_map=replace_map)
        out = self._classifier.forward(inputs.bfloat16(), replace_map=replace_map)
        features = None if out.features is None else out.features.float()
        numerators = None if out.numerators is None else out.numerators.float()
        logits = out.logits.float()
        if features is not None and self._head is not None:
            logits = self._head(features)
        return Forward(logits, features, out.maps, numerators)

    def gradient(self, objective: Tensor, inputs: Tensor) -> Tensor:
        """Give the gradient of one number per image; the graph is kept for the next."""
        self.passes = self.passes.plus(PassCount(backward=len(inputs)))
        (gradient,) = torch.autograd.grad(objective.sum(), inputs, retain_graph=True)
        return gradient

    def close(self) -> None:
        """Leave the module as it was found."""
        self._restore()

    def exact(self) -> AbstractContextManager[None]:
        """Make CUDA compute in the precision asked for, and the same in every run."""
        return exact_on(self.device)


def _copied(classifier: Classifier) -> Classifier:
    """Copy a classifier part by part: its own way of copying may be made for other processes."""
    copy: Classifier = object.__new__(type(classifier))
    vars(copy).update(deepcopy(vars(classifier), {id(classifier): copy}))
    return copy


def _moved(head: Head, device: torch.device) -> Head:
    return Head(head.weight.to(device, torch.float32), head.bias.to(device, torch.float32))
