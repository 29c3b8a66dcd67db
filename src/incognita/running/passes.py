"""Asks extraction for what methods need of each part of a benchmark, and keeps the account."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from incognita.containers.dataset import Dataset
from incognita.containers.needs import Needs, Probe
from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.extraction.extract import extract
from incognita.extraction.recording import Extracted
from incognita.extraction.settings import BrokenImage, PassCount, Settings
from incognita.extraction.store import OutputStore
from incognita.methods.ensembles import join_members
from incognita.methods.method import Method
from incognita.models.classifier import Classifier

# stage, images done of it, images of it in all
Progress = Callable[[str, int, int], None]
POOLED = Needs.LAYERS | Needs.LATENT | Needs.SHORTCUTS


@dataclass(eq=False)
class Account:
    """What passes cost, and the images that could not be used."""

    settings: Settings
    store: OutputStore | None = None
    on_progress: Progress | None = None
    broken: list[tuple[str, BrokenImage]] = field(default_factory=list)
    count: PassCount = PassCount(0, 0, 0)  # noqa: RUF009 - a tuple
    n_bytes: int = 0

    def mover(self, name: str, total: int) -> Callable[[int], None]:
        """Give what extraction tells of images done, for the part of this name."""
        n_done = 0

        def move(n: int) -> None:
            nonlocal n_done
            n_done += n
            if self.on_progress is not None:
                self.on_progress(name, n_done, total)

        return move

    def enter(self, name: str, extracted: Extracted[Any]) -> None:
        """Note what a pass over a part gave and cost; a part without any image is refused."""
        new = [(name, each) for each in extracted.broken]
        seen = {(part, each.image_id) for part, each in self.broken}
        self.broken += [(part, each) for part, each in new if (part, each.image_id) not in seen]
        self.count = PassCount(*map(sum, zip(self.count, extracted.passes, strict=True)))
        self.n_bytes += extracted.n_bytes
        if extracted.broken and not extracted.n_images:
            raise InvalidDataError(
                f"None of the {len(extracted.broken)} images of {name} could be used; the first "
                f"is broken because {extracted.broken[0].reason}."
            )


@dataclass(eq=False)
class Passes:
    """Runs the networks over data sets, each image once for everything asked of it.

    With several networks the outputs are those of the ensemble: logits are the mean logits,
    features and head those of the first network.
    """

    networks: Sequence[Classifier]
    account: Account

    def outputs(
        self, name: str, dataset: Dataset, *, probes: Sequence[Probe] = (), layers: bool = False
    ) -> ClassifierOutputs:
        """Give the outputs of a set; broken images are noted under its name and left out."""
        first = self._run(self.networks[0], name, dataset, probes, layers=layers)
        if len(self.networks) == 1:
            return first
        others = [self._run(each, name, dataset, (), layers=False) for each in self.networks[1:]]
        return join_members(_of_common_images([first, *others]))

    def nothing(self) -> ClassifierOutputs:
        """Give the outputs of no image."""
        return ClassifierOutputs.empty(len(self.networks[0].class_names), self.networks[0].head)

    def _run(
        self,
        network: Classifier,
        name: str,
        dataset: Dataset,
        probes: Sequence[Probe],
        *,
        layers: bool,
    ) -> ClassifierOutputs:
        extracted = extract(
            network,
            dataset,
            probes=probes,
            layers=layers,
            settings=self.account.settings,
            store=self.account.store,
            on_progress=self.account.mover(name, len(dataset.image_ids)),
        )
        self.account.enter(name, extracted)
        return extracted.outputs


def _of_common_images(parts: Sequence[ClassifierOutputs]) -> list[ClassifierOutputs]:
    """Keep the images that every network could use."""
    common = set.intersection(*(set(part.image_ids) for part in parts))
    return [
        part[torch.tensor([i in common for i in part.image_ids], dtype=torch.bool)]
        for part in parts
    ]


def wants_layers(methods: Iterable[Method]) -> bool:
    """Whether any method looks at pooled layer features."""
    return any(POOLED & method.all_needs for method in methods)


def distinct(probes: Iterable[Probe]) -> tuple[Probe, ...]:
    """Each probe once, however many methods ask for it."""
    return tuple({probe.key: probe for probe in probes}.values())


def probes_to_fit(methods: Iterable[Method], part: str) -> tuple[Probe, ...]:
    """What must be recorded of the `known` or the `validation` part before methods are fitted."""
    return distinct(p for m in methods for p in m.probes_to_fit(part))
