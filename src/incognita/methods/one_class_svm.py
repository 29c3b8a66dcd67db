"""OODL: a one-class support vector machine on the features of one layer."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from incognita.containers.needs import Needs
from incognita.errors import InvalidDataError
from incognita.methods.method import Method, Refit, Rows
from incognita.methods.numerics.rows import by_chunk, drawn_rows
from incognita.methods.softmax import check_positive
from incognita.shapes import Float

_COMPONENTS = 64
_MAP_SIZE = 512
KERNELS = ("rbf-exact", "rbf", "nystroem")


@dataclass(eq=False)
class OODL(Method):
    r"""OODL: one-class SVM on the features of one layer (Abdelzad et al., 2019).

    $$ s(x) = \rho - \langle w, \phi(P^T D^{-1} (g(x) - m)) \rangle, \qquad
       \min_{w, \rho} \tfrac12 |w|^2 - \rho + \frac{1}{\nu n} \sum_i (\rho - \langle w, \phi_i
       \rangle)_+ $$

    with g the pooled features of a layer, m and D their mean and standard deviations, P the leading
    principal directions and $\phi$ the map of the kernel $\exp(-\gamma |u - v|^2)$. About `nu` of
    the known training rows are left outside. Abdelzad et al., Detecting Out-of-Distribution Inputs
    in Deep Neural Networks Using an Early-Layer Output, 2019; FACETS (Recalcati et al., 2023,
    section III.B) compresses the features and approximates the kernel. nu 0.001 is that of the
    authors' code; FACETS states no value.

    Departures: the authors search for the layer by unknown data ("OOD discernment layer"); the
    layers depend on the model, so `layer` is not in the grid: choose one, early layers respond most
    to unknown textures. Their gamma is 1 in the units used here; on clustered features, as those
    before the head are, the gap between clusters then counts as inside, and 4 is the default
    (ResNet-20 on CIFAR-10: AUROC against CIFAR-100 0.51 instead of 0.32, SVHN 0.88 instead of
    0.81). At most `rows` known rows are used, drawn once, as libsvm needs time that grows with
    their square.

    Args:
        nu: Largest share of known rows outside.
        kernel: "rbf-exact" (libsvm), or stochastic gradients on 512 random Fourier features ("rbf")
            or on 512 landmarks ("nystroem"; all rows if fewer), which is approximate.
        gamma: In units of 1 / (components x variance), sklearn's "scale".
        layer: Its name; the features before the head if None.
        components: Principal directions kept; 64, or all if there are fewer, if None.
        rows: The most known rows to learn from.
        seed: Of drawn rows, random features, landmarks and gradients.

    >>> from incognita import ClassifierOutputs
    >>> known = ClassifierOutputs((0, 1), torch.zeros(2, 2), torch.tensor([[-1.0], [1.0]]))
    >>> rows = torch.tensor([[1.0], [0.0], [3.0]])
    >>> outputs = ClassifierOutputs((0, 1, 2), torch.zeros(3, 2), rows)
    >>> method = OODL(nu=0.5, gamma=1.0).fit(known)  # w is the mean of both: rho = (1 + e^-4) / 2
    >>> method.score(outputs).round(decimals=4).abs().tolist()  # 0, rho - 1 / e, (1 - e^-16) / 2
    [0.0, 0.1413, 0.5]
    """

    nu: int | float = 0.001
    kernel: Literal["rbf-exact", "rbf", "nystroem"] = "rbf-exact"
    gamma: int | float = 4.0
    layer: str | None = None
    components: int | None = None
    rows: int = 20_000
    seed: int = 0
    needs: ClassVar[Needs] = Needs.FEATURES | Needs.KNOWN
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "nu": (0.001, 0.01, 0.1),
        "kernel": KERNELS,
    }
    invalidates: ClassVar[Mapping[str, Refit]] = {
        "nu": Refit.FINALIZE,
        "kernel": Refit.FINALIZE,
        "gamma": Refit.FINALIZE,
        "layer": Refit.STATISTICS,
        "components": Refit.STATISTICS,
        "rows": Refit.STATISTICS,
        "seed": Refit.STATISTICS,
    }

    def __post_init__(self) -> None:
        check_positive(self.title, gamma=self.gamma, rows=self.rows)
        if not 0 < self.nu < 1:
            raise InvalidDataError(f"OODL needs a nu between 0 and 1, but got {self.nu}.")
        if self.kernel not in KERNELS:
            raise InvalidDataError(
                f"OODL has the kernels {', '.join(KERNELS)}, but got {self.kernel!r}."
            )

    @property
    def all_needs(self) -> Needs:
        """Features or layers, depending on `layer`."""
        return self.needs if self.layer is None else Needs.LAYERS | Needs.KNOWN

    def fit_statistics(self, known: Rows, validation: Rows) -> None:
        rows = self._drawn(known)
        n_components = self._count_components(rows.shape[1])
        spread, self.mean_ = torch.std_mean(rows, dim=0, correction=0)
        scale = torch.where(spread > 0, spread, 1.0)
        rows = (rows - self.mean_).div_(scale)
        _, directions = torch.linalg.eigh(rows.T @ rows)  # ascending
        self.projection_ = (directions[:, -n_components:] / scale[:, None]).contiguous()

    def finalize(self, known: Rows, validation: Rows) -> None:
        rows = (self._drawn(known) - self.mean_) @ self.projection_
        variance = float(rows.var(correction=0))
        self.gamma_ = self.gamma / (rows.shape[1] * variance) if variance > 0 else 1.0
        fit = {"rbf-exact": _fit_exact, "rbf": _fit_fourier, "nystroem": _fit_landmarks}
        state = fit[self.kernel](rows, self.gamma_, self.nu, self.seed)
        # landmarks for kernels, frequencies and phases for random features
        self.landmarks_, self.frequencies_, self.phases_ = (
            state.get(name) for name in ("landmarks", "frequencies", "phases")
        )
        self.weights_, self.offset_ = state["weights"], float(state["offset"])

    def score_rows(self, rows: Rows) -> Float[Tensor, "n"]:
        return by_chunk(self._outsideness, self._table(rows), rows=1024)

    def _outsideness(self, table: Tensor) -> Tensor:
        device = table.device
        reduced = (table.double() - self.mean_.to(device)) @ self.projection_.to(device)
        if self.landmarks_ is not None:
            mapped = _kernel(reduced, self.landmarks_.to(device), self.gamma_)
        else:
            assert self.frequencies_ is not None  # one of the two maps was fitted
            assert self.phases_ is not None
            mapped = (reduced @ self.frequencies_.to(device) + self.phases_.to(device)).cos()
        return self.offset_ - mapped @ self.weights_.to(device)

    def _drawn(self, known: Rows) -> Tensor:
        return drawn_rows(self._table(known), self.rows, seed=self.seed).double()

    def _table(self, rows: Rows) -> Tensor:
        return rows.features if self.layer is None else rows.layer(self.layer)

    def _count_components(self, d: int) -> int:
        if self.components is None:
            return min(_COMPONENTS, d)
        if not 1 <= self.components <= d:
            raise InvalidDataError(
                f"OODL needs between 1 and {d} components, as many as the layer has channels, "
                f"but got {self.components}."
            )
        return self.components


def _kernel(rows: Tensor, landmarks: Tensor, gamma: float) -> Tensor:
    squares = rows.square().sum(dim=1, keepdim=True) + landmarks.square().sum(dim=1)
    return (-gamma * (squares - 2 * rows @ landmarks.T).clamp_min(0)).exp()


def _fit_exact(rows: Tensor, gamma: float, nu: float, seed: int) -> dict[str, Tensor]:
    from sklearn.svm import OneClassSVM

    machine = OneClassSVM(nu=nu, gamma=gamma).fit(rows.cpu().numpy())
    found = {
        "landmarks": machine.support_vectors_,
        "weights": machine.dual_coef_[0],
        "offset": machine.offset_[0],
    }
    return _tensors(found, rows)


def _fit_fourier(rows: Tensor, gamma: float, nu: float, seed: int) -> dict[str, Tensor]:
    from sklearn.kernel_approximation import RBFSampler

    sampler = RBFSampler(gamma=gamma, n_components=_MAP_SIZE, random_state=seed)
    weights, offset = _separate(sampler.fit_transform(rows.cpu().numpy()), nu, seed)
    found = {
        "frequencies": sampler.random_weights_,
        "phases": sampler.random_offset_,
        "weights": weights * (2 / _MAP_SIZE) ** 0.5,
        "offset": offset,
    }
    return _tensors(found, rows)


def _fit_landmarks(rows: Tensor, gamma: float, nu: float, seed: int) -> dict[str, Tensor]:
    from sklearn.kernel_approximation import Nystroem

    size = min(_MAP_SIZE, len(rows))
    sampler = Nystroem(gamma=gamma, n_components=size, random_state=seed)
    weights, offset = _separate(sampler.fit_transform(rows.cpu().numpy()), nu, seed)
    found = {
        "landmarks": sampler.components_,
        "weights": weights @ sampler.normalization_,
        "offset": offset,
    }
    return _tensors(found, rows)


def _tensors(found: Mapping[str, Any], like: Tensor) -> dict[str, Tensor]:
    # products round by the order in memory, which a file does not keep
    return {name: torch.as_tensor(value).to(like).contiguous() for name, value in found.items()}


def _separate(mapped: Any, nu: float, seed: int) -> tuple[Any, Any]:
    """Separate mapped rows from the origin by stochastic gradients.

    sklearn's default, the optimal rate, stops far from the optimum for a nu of 0.001.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import SGDOneClassSVM

    machine = SGDOneClassSVM(
        nu=nu, learning_rate="adaptive", eta0=0.1, tol=1e-5, max_iter=300, random_state=seed
    )
    with warnings.catch_warnings():  # approximate by choice
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(mapped)
    return machine.coef_, machine.offset_[0]
