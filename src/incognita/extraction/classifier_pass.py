"""What is recorded for a batch, in as few passes of the network as the columns asked for need.

One forward pass serves logits, features, pooled layers, Gram rows and numerators. The probes that
step the input share its graph: one backward pass per objective, one forward pass per step.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from incognita.containers.needs import (
    AdaScaleStep,
    ExtraOutput,
    GramRows,
    InputStep,
    LogitsWithoutTopDirection,
    MahalanobisStep,
    Numerators,
)
from incognita.containers.outputs import Head
from incognita.errors import InvalidDataError, unknown_name
from incognita.extraction.feature_maps import gram_rows, pooled, without_largest_direction
from incognita.extraction.image_loader import Inputs
from incognita.extraction.settings import LAYERS, OUTPUTS, OutputRequest, PassCount, Settings
from incognita.extraction.shards import BatchOutputs, Columns
from incognita.models.classifier import Classifier, Forward


@contextmanager
def exact_on(device: torch.device) -> Iterator[None]:
    """Make CUDA compute in the precision asked for, and the same in every run."""
    if device.type != "cuda":
        yield
        return
    allow_tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allow_tf32


def restoring(module: nn.Module) -> Callable[[], None]:
    """Note the state of a module; gives a function that brings it back."""
    modes = [(each, each.training) for each in module.modules()]
    weights = [(each, each.device, each.requires_grad) for each in module.parameters()]
    buffers = [(each, each.device) for each in module.buffers()]

    def restore() -> None:
        for each, is_training in modes:
            each.training = is_training
        for weight, device, requires_grad in weights:
            weight.data = weight.data.to(device).contiguous()
            weight.requires_grad_(requires_grad)
        for buffer, device in buffers:
            buffer.data = buffer.data.to(device).contiguous()

    return restore


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


Step = InputStep | AdaScaleStep | MahalanobisStep
KNOWN_PROBES = (
    GramRows,
    Numerators,
    LogitsWithoutTopDirection,
    InputStep,
    AdaScaleStep,
    MahalanobisStep,
)


class ProbedNetwork(Network):
    """A classifier that records whatever is wanted of a batch."""

    def record(self, inputs: Inputs, wanted: OutputRequest) -> BatchOutputs:
        """Run the network on one batch and give the columns of each group."""
        assert isinstance(inputs, Tensor)
        return BatchOutputs(record(self, inputs.to(self.device, non_blocking=True), wanted))


def identity_of_classifier(classifier: Classifier) -> dict[str, Any]:
    """Give everything about a classifier that could change an output."""
    return {
        "weights_hash": classifier.weights_hash,
        "preprocessing": classifier.preprocessing,
        "pixel_std": classifier.pixel_std.tolist(),
        "layers": list(classifier.layers),
    }


def check_wanted(wanted: OutputRequest, *, layers: Sequence[str], name: str) -> None:
    """Refuse what this network cannot be asked for, before it is run."""
    for extra in wanted.extra_outputs:
        if not isinstance(extra, KNOWN_PROBES):
            raise InvalidDataError(
                f"{type(extra).__name__} is no probe that can be recorded; "
                f"choose one of: {', '.join(each.__name__ for each in KNOWN_PROBES)}."
            )
        if isinstance(extra, MahalanobisStep) and extra.layer not in layers:
            raise unknown_name(f"layer of {name}", extra.layer, layers)
        if isinstance(extra, LogitsWithoutTopDirection) and len(layers) < 2:
            raise InvalidDataError(
                f"LogitsWithoutTopDirection needs two layers, but {name} records {len(layers)}; "
                f"name more when wrapping the model."
            )
    if not layers and (wanted.layers or any(isinstance(p, GramRows) for p in wanted.extra_outputs)):
        raise InvalidDataError(
            f"Layers are asked for, but {name} records none; name some when wrapping the model."
        )


def record(network: Network, inputs: Tensor, wanted: OutputRequest) -> dict[str, Columns]:
    """Run the network on one batch and give the columns of each group."""
    network.passes = network.passes.plus(PassCount(images=len(inputs)))
    groups = _of_the_base_pass(network, inputs, wanted)
    for extra in wanted.extra_outputs:
        if isinstance(extra, LogitsWithoutTopDirection):
            groups[extra.key] = _without_directions(network, inputs)
    return groups


def _of_the_base_pass(
    network: Network, inputs: Tensor, wanted: OutputRequest
) -> dict[str, Columns]:
    steps = [p for p in wanted.extra_outputs if isinstance(p, Step)]
    plain = [p for p in wanted.extra_outputs if isinstance(p, GramRows | Numerators)]
    if not (wanted.outputs or wanted.layers or steps or plain):
        return {}
    objectives = {_direction(step): step for step in steps if step.epsilon}
    with torch.inference_mode(mode=not objectives), torch.set_grad_enabled(bool(objectives)):
        watched = inputs.detach().requires_grad_() if objectives else inputs
        base = network.forward(watched)
        gradients = {
            direction: network.gradient(_objective(step, base), watched)
            for direction, step in objectives.items()
        }
    base = _detached(base)  # the graph is large, and nobody needs it from here on
    with torch.inference_mode():
        groups = _without_steps(base, wanted)
        for step in steps:
            after = base  # a step of no length leads nowhere, and needs no pass
            if step.epsilon:
                gradient = gradients[_direction(step)]
                after = network.forward(_stepped(step, inputs, gradient, network.pixel_std))
            groups[step.key] = _step_columns(step, after)
    return groups


def _without_steps(base: Forward, wanted: OutputRequest) -> dict[str, Columns]:
    groups: dict[str, Columns] = {}
    if wanted.outputs:
        groups[OUTPUTS] = {"logits": base.logits}
        if base.features is not None:
            groups[OUTPUTS]["features"] = base.features
    if wanted.layers:
        groups[LAYERS] = {name: pooled(each) for name, each in base.maps.items()}
    for extra in wanted.extra_outputs:
        if isinstance(extra, GramRows):
            groups[extra.key] = {n: gram_rows(m, extra.powers) for n, m in base.maps.items()}
        if isinstance(extra, Numerators):
            groups[extra.key] = {"h": _present(base.numerators, extra, "numerators")}
    return groups


def _direction(step: Step) -> Hashable:
    """Say what the gradient depends on: steps that agree in it share a backward pass."""
    if isinstance(step, AdaScaleStep):
        return "largest logit"
    if isinstance(step, MahalanobisStep):
        return replace(step, epsilon=0.0).key
    return ("confidence", step.temperature) if step.objective == "confidence" else "numerator"


def _objective(step: Step, base: Forward) -> Tensor:
    """Give the number, one per image, that the step raises (or, for Mahalanobis, lowers)."""
    if isinstance(step, AdaScaleStep):
        return base.logits.max(dim=1).values
    if isinstance(step, MahalanobisStep):
        return _smallest_distance(pooled(base.maps[step.layer]), step)
    if step.objective == "numerator":
        return _present(base.numerators, step, "numerators").max(dim=1).values
    # in float64 the gradient of a confidence near 1 does not vanish
    return (base.logits.double() / step.temperature).log_softmax(dim=1).max(dim=1).values


def _smallest_distance(features: Tensor, step: MahalanobisStep) -> Tensor:
    means = step.means.to(features.device, torch.float64)
    precision = step.precision.to(features.device, torch.float64)
    features = features.double()
    with torch.no_grad():  # |x|^2 is the same for all classes, so that it need not be there
        cross = means @ precision
        nearest = ((cross * means).sum(dim=1) - 2 * features @ cross.mT).argmin(dim=1)
    difference = features - means[nearest]
    return ((difference @ precision) * difference).sum(dim=1)


def _stepped(step: Step, inputs: Tensor, gradient: Tensor, pixel_std: Tensor) -> Tensor:
    if isinstance(step, AdaScaleStep):
        flat = gradient.flatten(1)
        n_moved = int(step.share * flat.shape[1])
        moved = flat.abs().topk(n_moved, dim=1, largest=False).indices
        is_moved = torch.zeros_like(flat).scatter_(1, moved, 1.0).view_as(gradient)
        return inputs + step.epsilon * is_moved * gradient.sign()
    length = -step.epsilon if isinstance(step, MahalanobisStep) else step.epsilon
    return inputs + length * gradient.sign() / pixel_std


def _step_columns(step: Step, after: Forward) -> Columns:
    if isinstance(step, MahalanobisStep):
        return {"features": pooled(after.maps[step.layer])}
    if isinstance(step, AdaScaleStep):
        return {"features": _present(after.features, step, "features")}
    if step.objective == "numerator":
        columns = {"logits": _present(after.numerators, step, "numerators")}
    else:
        columns = {"logits": after.logits}
    return columns if after.features is None else columns | {"features": after.features}


@torch.inference_mode()
def _without_directions(network: Network, inputs: Tensor) -> Columns:
    columns = {"last": network.layers[-1], "previous": network.layers[-2]}
    return {
        column: network.forward(inputs, replace_map=(layer, without_largest_direction)).logits
        for column, layer in columns.items()
    }


def _present(column: Tensor | None, extra: ExtraOutput, what: str) -> Tensor:
    if column is None:
        raise InvalidDataError(
            f"{type(extra).__name__} needs {what}, but the network gives none; "
            f"leave out the method that asks for it, or take a network that has them."
        )
    return column


def _detached(base: Forward) -> Forward:
    return Forward(
        base.logits.detach(),
        None if base.features is None else base.features.detach(),
        {name: each.detach() for name, each in base.maps.items()},
        None if base.numerators is None else base.numerators.detach(),
    )
