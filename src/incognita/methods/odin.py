"""Methods on the logits after a small step of the input, which the pass records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from incognita.containers.needs import ExtraOutput, Needs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import InputStep, Numerators
from incognita.methods.method import Method, Rows
from incognita.methods.numerics.rows import by_chunk
from incognita.methods.softmax import check_positive, one_minus_largest
from incognita.shapes import Float


@dataclass(eq=False)
class _ConfidenceStep(Method):
    """Shared by the methods on logits after a step that raises the confidence."""

    temperature: int | float = 1000.0
    epsilon: int | float = 0.0014
    needs: ClassVar[Needs] = Needs.LOGITS
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "temperature": (1.0, 10.0, 100.0, 1000.0),
        "epsilon": (0.0014, 0.0028),
    }

    def __post_init__(self) -> None:
        _check_step(self.title, temperature=self.temperature, epsilon=self.epsilon)

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        # 1000 and 1000.0 are the same step and must have the same key
        step = InputStep(float(self.epsilon), float(self.temperature))
        return (step,) if self.epsilon > 0 else ()

    def _stepped_logits(self, rows: Rows) -> Tensor:
        steps = self.extra_outputs()
        return rows.column(steps[0], "logits") if steps else rows.logits


@dataclass(eq=False)
class ODIN(_ConfidenceStep):
    r"""ODIN: MSP after temperature scaling and an input perturbation (Liang et al., 2018).

    A step that raises the confidence raises it more for known images than for unknown ones; the
    high temperature keeps the softmax from saturating:

    $$ s(x) = 1 - \max_c \operatorname{softmax}(f(\tilde x) / T)_c, \qquad
       \tilde x = x + \epsilon \operatorname{sign} \nabla_x \log \max_c
       \operatorname{softmax}(f(x) / T)_c $$

    with f the logits, T `temperature` and $\epsilon$ `epsilon` in pixels between 0 and 1. The extra
    output `InputStep` records $f(\tilde x)$; with epsilon 0 nothing needs to be recorded.
    Liang et al., Enhancing the Reliability of Out-of-distribution Image Detection in Neural
    Networks, ICLR 2018, equations 1 and 2. Defaults and grid are those of OpenOOD.

    Departures: none from the paper, which scores the confidence itself and calls a low one unknown.
    OpenOOD divides the step by a standard deviation it looks up by the data set's name, 0.5 for
    those it does not know; here the model's own is used. The other probabilities are added in
    float64: at T = 1000 all scores lie within about 1e-3 of 1 - 1 / classes, and float32 would keep
    four digits of that.

    >>> from incognita import ClassifierOutputs
    >>> import torch
    >>> step = InputStep(0.0014, 1000.0)
    >>> stepped = {f"{step.key}/logits": torch.tensor([[1000.0, 0.0], [0.0, 0.0]])}
    >>> outputs = ClassifierOutputs(("a", "b"), torch.zeros(2, 2), extra_outputs=stepped)
    >>> ODIN().score(outputs).round(decimals=4).tolist()  # 1 / (1 + e), 1 / 2
    [0.2689, 0.5]
    """

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return _uncertainty(self._stepped_logits(rows), self.temperature)


@dataclass(eq=False)
class ODINTemperature(Method):
    r"""ODIN without the input perturbation: MSP at a high temperature (Liang et al., 2018).

    $$ s(x) = 1 - \max_c \operatorname{softmax}(f(x) / T)_c $$

    with f the logits and T `temperature`. As T grows it ranks rows by how far the largest logit
    lies above the mean of all: $1 - s \approx (1 + (\max_c f_c - \bar f) / T) / C$.
    Liang et al., ICLR 2018, section 3; "TS" in FACETS (Recalcati et al., 2023). T = 1000 and the
    grid are those of OpenOOD's ODIN.

    >>> from incognita import ClassifierOutputs
    >>> import torch
    >>> outputs = ClassifierOutputs(("a", "b"), torch.tensor([[1000.0, 0.0], [0.0, 0.0]]))
    >>> ODINTemperature().score(outputs).round(decimals=4).tolist()  # 1 / (1 + e), 1 / 2
    [0.2689, 0.5]
    """

    temperature: int | float = 1000.0
    needs: ClassVar[Needs] = Needs.LOGITS
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "temperature": (1.0, 10.0, 100.0, 1000.0)
    }

    def __post_init__(self) -> None:
        _check_step(self.title, temperature=self.temperature)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return _uncertainty(rows.logits, self.temperature)


@dataclass(eq=False)
class ODINMaxLogit(_ConfidenceStep):
    r"""ODIN with the largest logit instead of the softmax (Recalcati et al., 2023).

    $$ s(x) = -\max_c f_c(\tilde x) / T $$

    with f the logits and $\tilde x$ the stepped input of `ODIN`. Dividing by the `temperature`
    changes no ranking; the temperature matters because the step is taken at it.
    "IP-TS-MLV" in FACETS: Recalcati et al., Toward a Realistic Benchmark for Out-of-Distribution
    Detection, 2023. Defaults and grid are those of OpenOOD's ODIN, as FACETS prints none.

    >>> from incognita import ClassifierOutputs
    >>> import torch
    >>> step = InputStep(0.0014, 1000.0)
    >>> stepped = {f"{step.key}/logits": torch.tensor([[9.0, 0.0], [1.0, 2.0]])}
    >>> outputs = ClassifierOutputs(("a", "b"), torch.zeros(2, 2), extra_outputs=stepped)
    >>> ODINMaxLogit().score(outputs).tolist()
    [-0.009, -0.002]
    """

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        largest = by_chunk(lambda part: part.amax(dim=1), self._stepped_logits(rows))
        return -largest / self.temperature


@dataclass(eq=False)
class GODIN(Method):
    r"""Generalized ODIN: the largest numerator of logits h / g, negated (Hsu et al., 2020).

    $$ s(x) = -\max_c h_c(\tilde x), \qquad
       \tilde x = x + \epsilon \operatorname{sign} \nabla_x \max_c h_c(x) $$

    with h the numerators and $\epsilon$ `epsilon` in pixels between 0 and 1. Only for networks that
    have numerators. `InputStep` with objective `numerator` records $h(\tilde x)$ in its column
    `logits`; with epsilon 0 `Numerators` records h itself.
    Hsu et al., Generalized ODIN: Detecting Out-of-distribution Image without Learning from
    Out-of-distribution Data, CVPR 2020, equations 6 and 8. epsilon 0.0025 is OpenOOD's; the paper
    takes the one with the largest mean numerator on known validation data.

    Departures: OpenOOD scores the largest softmax of h, the paper and this the largest h. There is
    no grid to search because neither the paper nor OpenOOD chooses epsilon by unknown data.

    >>> from incognita import ClassifierOutputs
    >>> import torch
    >>> recorded = {f"{Numerators().key}/h": torch.tensor([[0.9, -0.2], [0.1, 0.3]])}
    >>> outputs = ClassifierOutputs(("a", "b"), torch.zeros(2, 2), extra_outputs=recorded)
    >>> GODIN(epsilon=0.0).score(outputs).round(decimals=4).tolist()
    [-0.9, -0.3]
    """

    epsilon: int | float = 0.0025
    needs: ClassVar[Needs] = Needs.LOGITS

    def __post_init__(self) -> None:
        _check_step(self.title, epsilon=self.epsilon)

    def extra_outputs(self) -> tuple[ExtraOutput, ...]:
        if self.epsilon == 0:
            return (Numerators(),)
        return (InputStep(float(self.epsilon), objective="numerator"),)

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        (extra,) = self.extra_outputs()
        numerators = rows.column(extra, "h" if self.epsilon == 0 else "logits")
        return -by_chunk(lambda part: part.amax(dim=1), numerators)


def _uncertainty(logits: Tensor, temperature: float) -> Tensor:
    return by_chunk(
        lambda part: one_minus_largest((part.double() / temperature).softmax(dim=1)), logits
    )


def _check_step(title: str, *, temperature: float = 1.0, epsilon: float = 0.0) -> None:
    check_positive(title, temperature=temperature)
    if not 0 <= epsilon < float("inf"):
        raise InvalidDataError(f"{title} needs an epsilon of 0 or more, but got {epsilon}.")
