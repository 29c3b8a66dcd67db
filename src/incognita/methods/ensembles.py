"""Methods that average the probabilities of several networks, trained or sampled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from incognita.containers import ClassifierOutputs, Head, Needs
from incognita.errors import InvalidDataError
from incognita.methods.method import Method, Rows
from incognita.methods.numerics.activations import float64_logits
from incognita.methods.numerics.rows import by_chunk, chunks, new_rows
from incognita.methods.softmax import one_minus_largest, rows_at_once
from incognita.shapes import Float

MEMBERS = "members/logits"


@dataclass(eq=False)
class MCDropout(Method):
    r"""MC dropout: MSP of the mean over random dropout masks (Gal and Ghahramani, 2016).

    $$ s(x) = 1 - \max_c \frac1K \sum_{k=1}^K
       \operatorname{softmax}\big(W (m_k \odot z) / (1 - r) + b\big)_c $$

    with z the features, W and b the head, r `rate`, K `passes` and m_k zeros (with probability r)
    and ones. Gal and Ghahramani, Dropout as a Bayesian Approximation, ICML 2016. Rate 0.5 and 5
    passes are OpenOOD's.

    Departures: dropout acts on the features only, as in OpenOOD, so the network runs once and not K
    times. The paper averages probabilities, and so do we; OpenOOD averages logits, which for
    dropout in front of a linear head is one logit vector with fewer features dropped. One mask per
    pass serves all rows: a pass is one network drawn from the posterior, and no score depends on
    the other rows or their order. Masks follow from `seed` alone, on any device.

    >>> head = Head(torch.eye(2), torch.zeros(2))
    >>> features = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    >>> outputs = ClassifierOutputs(("a", "b"), features, features, head=head)
    >>> MCDropout(rate=0.0).score(outputs).round(decimals=4).tolist()  # 1 / (1 + e^2), 1 / 2
    [0.1192, 0.5]
    """

    rate: int | float = 0.5
    passes: int = 5
    seed: int = 0
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.HEAD

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise InvalidDataError(
                f"MCDropout needs a rate of at least 0 and below 1, but got {self.rate}."
            )
        if self.passes < 1:
            raise InvalidDataError(f"MCDropout needs at least 1 pass, but got {self.passes}.")

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        heads = self._thinned_heads(rows.head, rows.features.device)

        def uncertainty(features: Tensor) -> Tensor:
            logits = float64_logits(heads, features.double())
            return _uncertainty_of_mean(logits.view(len(features), self.passes, -1))

        return by_chunk(uncertainty, rows.features, rows=rows_at_once(rows))

    def _thinned_heads(self, head: Head, device: torch.device) -> Head:
        """Join one head per pass; dropping a feature is dropping a column of the weight."""
        rng = torch.Generator().manual_seed(self.seed)
        kept = torch.rand(self.passes, head.weight.shape[1], generator=rng) >= self.rate
        scales = kept.double().to(device) / (1 - self.rate)
        weight, bias = head.weight.double().to(device), head.bias.double().to(device)
        return Head(torch.cat([weight * scale for scale in scales]), bias.repeat(self.passes))


@dataclass(eq=False)
class Ensemble(Method):
    r"""Deep ensemble: MSP of the mean of several networks (Lakshminarayanan et al., 2017).

    $$ s(x) = 1 - \max_c \frac1M \sum_{m=1}^M \operatorname{softmax}(f^m(x))_c $$

    with f^m the logits of member m, which `join_members` puts into one table.
    Lakshminarayanan et al., Simple and Scalable Predictive Uncertainty Estimation using Deep
    Ensembles, NeurIPS 2017, section 2.4.

    Departures: OpenOOD averages logits instead of probabilities.

    >>> one = ClassifierOutputs(("a", "b"), torch.tensor([[9.0, 0.0], [9.0, 0.0]]))
    >>> two = ClassifierOutputs(("a", "b"), torch.tensor([[9.0, 0.0], [0.0, 9.0]]))
    >>> Ensemble().score(join_members([one, two])).round(decimals=4).tolist()
    [0.0001, 0.5]
    """

    needs: ClassVar[Needs] = Needs.LOGITS | Needs.MEMBERS

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        logits = (rows.outputs.extra_outputs or {}).get(MEMBERS)
        if logits is None:
            raise InvalidDataError(
                "Ensemble needs the logits of several networks, but the outputs are those of one; "
                "join the outputs of all members with join_members."
            )
        return by_chunk(_uncertainty_of_mean, logits, rows=1024)


def join_members(parts: Sequence[ClassifierOutputs]) -> ClassifierOutputs:
    r"""Join what several networks emitted for the same images.

    The logits of the whole are the mean logits $\frac1M \sum_m f^m$; those of the mean probability
    would have no energy of their own. Features, head, layers and labels are those of the first
    member: a method that uses them scores that member.

    >>> one = ClassifierOutputs(("a",), torch.tensor([[0.0, 0.0]]))
    >>> two = ClassifierOutputs(("a",), torch.tensor([[0.0, 30.0]]))
    >>> joined = join_members([one, two])
    >>> joined.logits, joined.extra_outputs["members/logits"].shape
    (tensor([[ 0., 15.]]), torch.Size([1, 2, 2]))
    """
    if not parts:
        raise InvalidDataError("Expected the outputs of at least one network, got none.")
    first = parts[0]
    for k, part in enumerate(parts):
        _check_member(k, part, first)
    mean, members = _joined_logits([part.logits for part in parts])
    return ClassifierOutputs(
        first.image_ids,
        mean,
        first.features,
        first.labels,
        first.head,
        first.layers,
        {**(first.extra_outputs or {}), MEMBERS: members},
    )


def _joined_logits(
    parts: Sequence[Tensor],
) -> tuple[Float[Tensor, "n classes"], Float[Tensor, "n members classes"]]:
    """Compute the mean logits, and stack those of all members."""
    like = parts[0]
    n, n_classes = like.shape
    mean = new_rows(n, n_classes, dtype=like.dtype)
    members = new_rows(n, len(parts), n_classes, dtype=like.dtype)
    for mean_rows, member_rows, *chunk in chunks(mean, members, *parts, rows=1024):
        logits = torch.stack([part.to(like) for part in chunk], dim=1)
        member_rows.copy_(logits)
        mean_rows.copy_(logits.double().mean(dim=1))
    return mean.to(like.device), members.to(like.device)


def _check_member(k: int, part: ClassifierOutputs, first: ClassifierOutputs) -> None:
    if part.image_ids != first.image_ids:
        raise InvalidDataError(
            f"Member {k} has other images than member 0, or another order of them; "
            f"extract all members on the same data."
        )
    if part.logits.shape[1] != first.logits.shape[1]:
        raise InvalidDataError(
            f"Member {k} knows {part.logits.shape[1]} classes, but member 0 knows "
            f"{first.logits.shape[1]}; join networks with the same classes."
        )


def _uncertainty_of_mean(logits: Tensor) -> Tensor:
    return one_minus_largest(logits.double().softmax(dim=2).mean(dim=1))
