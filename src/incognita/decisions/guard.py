r"""Guard: a fitted method with the threshold it is used at, to deploy beside a model.

A row (an image of a classifier, a box of a detector) is accepted if its unknown score is at most
the threshold. What to expect of that, from rows the method was not fitted on:

$$ \text{coverage} = P(s \le \tau \mid \text{known}), \qquad
   \text{false alarms} = P(s > \tau \mid \text{known}) = 1 - \text{coverage}, $$
$$ \text{risk} = P(\hat y \ne y \mid s \le \tau, \text{known}), \qquad
   \text{unknown rejected} = P(s > \tau \mid \text{unknown}) $$

with s the score, $\tau$ the threshold and $\hat y$ the predicted class. Unknown rows are not part
of the risk, which would then depend on how many of them there are. Intervals are Wilson's (1927),
which are not empty where nothing or everything was counted.
"""

import json
import logging
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from incognita.benchmarks.benchmark import ACCEPTED, KNOWN, MIXED, SHIFTED
from incognita.containers import ClassifierOutputs, Detections, DetectorOutputs, Head, Needs
from incognita.decisions.parse import score_policy
from incognita.decisions.thresholds import Policy, UnknownThreshold
from incognita.errors import IncognitaError, InvalidDataError
from incognita.extraction.extract import run_on_images
from incognita.extraction.settings import Settings
from incognita.files import (
    check_regular,
    file_hash,
    json_path,
    load_json,
    replacing,
    replacing_text,
)
from incognita.methods.method import Method, Rows
from incognita.methods.parse import parse_method
from incognita.methods.saving import load_saved_method, save_method
from incognita.metrics.measure import Share, share_of
from incognita.registry import need
from incognita.shapes import Bool, Float, Float64, Int

FORMAT = "incognita.guard.1"
_SUFFIXES = {"method": ".safetensors", "head": ".head.safetensors"}
_RESULT_FORMAT = "incognita.method-result."
_POOLED = Needs.LAYERS | Needs.LATENT | Needs.SHORTCUTS
# largest relative difference of an exported score: parameters become float32 in ONNX
_ONNX_ERROR = 1e-6
Outputs = ClassifierOutputs | DetectorOutputs


@dataclass(frozen=True)
class ExpectedShares:
    """What a threshold does on given rows.

    Args:
        coverage: Share of known rows that are accepted.
        false_alarms: Share of known rows that are rejected.
        risk: Share of accepted known rows whose class is wrong; None without labels.
        unknown_rejected: Share of unknown rows that are rejected; None without such rows.
        level: The probability that each interval covers the share.
    """

    coverage: Share
    false_alarms: Share
    risk: Share | None = None
    unknown_rejected: Share | None = None
    level: float = 0.95

    def __str__(self) -> str:
        shares = {name: value for name, value in vars(self).items() if isinstance(value, Share)}
        return "\n".join(f"{name.replace('_', ' ')}: {value}" for name, value in shares.items())


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Scores of rows, with what is known about them.

    Args:
        unknown_score: One per row.
        is_wrong: Whether the predicted class is not the true one; None where that is not known.
        n_units: Of how many images the rows are; None where each is one of its own.
    """

    unknown_score: Float64[np.ndarray, "n"]
    is_wrong: Bool[np.ndarray, "n"] | None = None
    n_units: int | None = None

    def shares_at(
        self, threshold: UnknownThreshold, unknown: "ScoredRows | None", *, level: float
    ) -> ExpectedShares:
        """Measure a threshold on these known rows, and on unknown ones."""
        is_accepted = ~threshold.is_unknown(self.unknown_score)
        n_accepted = int(is_accepted.sum())
        risk, rejected = None, None
        coverage = share_of(n_accepted, len(is_accepted), n_units=self.n_units, level=level)
        if self.is_wrong is not None:
            n_wrong = int((self.is_wrong & is_accepted).sum())
            risk = share_of(n_wrong, n_accepted, level=level)
        if unknown is not None:
            is_unknown = threshold.is_unknown(unknown.unknown_score)
            n_rejected, n = int(is_unknown.sum()), len(is_unknown)
            rejected = share_of(n_rejected, n, n_units=unknown.n_units, level=level)
        return ExpectedShares(coverage, coverage.complement, risk, rejected, level)


class GuardOutput(NamedTuple):
    """The decision about each row.

    `predicted` is the class with the largest logit, also of rejected rows; `names` are the names of
    these classes, where the guard knows them. `detections` are the boxes, if rows are boxes.
    """

    accepted: Bool[np.ndarray, "n"]
    unknown_score: Float64[np.ndarray, "n"]
    threshold: float
    predicted: Int[np.ndarray, "n"]
    names: tuple[str, ...] | None = None
    detections: Detections | None = None


class Latency(NamedTuple):
    """Time of checking one row, in milliseconds."""

    median_ms: float
    largest_ms: float
    n_calls: int


@dataclass(frozen=True, eq=False)
class Guard:
    """A fitted method and its threshold; `check` accepts or rejects the outputs of a model.

    Args:
        method: The fitted method.
        threshold: The largest score that is accepted.
        expected: What the threshold does on the rows it was chosen on.
        n_classes: The number of classes of the model; outputs with another number raise.
        class_names: Their names, in the order of the logits.
        head: The last layer of the model, for methods that use it; it is used in place of that of
            the outputs, which may then lack it.

    >>> from incognita.methods import MaxLogit
    >>> logits = torch.tensor([[9.0, 0.0], [0.0, 7.0], [1.0, 2.0], [0.0, 8.0]])
    >>> known = ClassifierOutputs(tuple("abcd"), logits, labels=torch.tensor([0, 1, 0, 1]))
    >>> guard = Guard.fit(MaxLogit(), known, policy="quantile(share=0.75)")
    >>> guard.threshold.value, guard.expected.coverage.value, guard.expected.risk.value
    (-7.0, 0.75, 0.0)
    >>> guard.check(known).accepted.tolist()
    [True, True, False, True]
    """

    method: Method
    threshold: UnknownThreshold
    expected: ExpectedShares
    n_classes: int
    class_names: tuple[str, ...] | None = None
    head: Head | None = None
    _columns: set[tuple[Any, ...]] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_method(self.method)
        if self.head is not None:
            object.__setattr__(self, "head", _OwnHead(self.head.weight, self.head.bias))
        names = self.class_names
        if names is not None and len(names) != self.n_classes:
            raise InvalidDataError(
                f"Expected the names of {self.n_classes} classes, as many as there are logits, got "
                f"{len(names)}. Pass the classes of the model."
            )

    def __repr__(self) -> str:
        coverage = self.expected.coverage
        return f"Guard({self.method!r}, {self.threshold.value:.6g}, coverage {coverage})"

    @classmethod
    def fit(
        cls,
        method: Method,
        known: Outputs,
        unknown: Outputs | None = None,
        *,
        policy: str | float | Policy = "quantile",
        class_names: Sequence[str] | None = None,
        level: float = 0.95,
    ) -> "Guard":
        """Choose the threshold of a fitted method and measure what it does.

        Args:
            method: A fitted method.
            known: Outputs on known images that the method was not fitted on, with labels where the
                risk is to be known.
            unknown: Outputs on unknown images, for policies that need them and for the share of
                them that is rejected.
            policy: How the threshold is chosen: `quantile(share=0.95)`, `gaussian`,
                `harmonic-mean`, or a number.
            class_names: The classes in the order of the logits.
            level: The probability that each interval covers its share.
        """
        _check_method(method)
        _check_level(level)
        rows = known.rows() if isinstance(known, DetectorOutputs) else known
        n_classes = rows.logits.shape[1]
        known_rows = _score(method, known, n_classes)
        unknown_rows = None if unknown is None else _score(method, unknown, n_classes)
        names = None if class_names is None else tuple(class_names)
        has_head = rows.head is not None and Needs.HEAD in method.all_needs
        return cls(
            method,
            *_choose(policy, known_rows, unknown_rows, level),
            n_classes,
            names,
            rows.head if has_head else None,
        )

    @classmethod
    def from_result(
        cls,
        path: str | PathLike[str],
        method: Method | None = None,
        *,
        policy: str | float | Policy = "quantile",
        class_names: Sequence[str] | None = None,
        level: float = 0.95,
    ) -> "Guard":
        """Choose the threshold from a stored result: its JSON and the Parquet table beside it.

        Known are the images or boxes of the group `known`, unknown those of groups such as `near`;
        shifted, accepted and mixed sets are left out. They are test data: do not report numbers
        that are measured on them again.

        Args:
            path: The JSON file of a result.
            method: The fitted method of the result; a method that learns nothing is built from the
                result.
            policy: How the threshold is chosen, as for `fit`.
            class_names: The classes in the order of the logits; by default those of the result.
            level: The probability that each interval covers its share.
        """
        _check_level(level)
        record = _load_result(Path(path))
        method = _method_of(record, Path(path), method)
        names = tuple(class_names or record["identity"]["classes"])
        known, unknown = _load_scores(Path(path).with_suffix(".parquet"))
        return cls(method, *_choose(policy, known, unknown, level), len(names), names)

    def check(self, outputs: Outputs) -> GuardOutput:
        """Accept or reject the outputs of one image or several, or each box of a detector."""
        is_of_boxes = isinstance(outputs, DetectorOutputs)
        rows = self._rows(outputs.rows() if is_of_boxes else outputs)  # type: ignore[union-attr]
        with torch.inference_mode():
            score = self._score(rows).cpu().numpy()
            predicted = rows.logits.argmax(dim=1).cpu().numpy()
        _check_scores(self.method, score, rows)
        names = self.class_names
        return GuardOutput(
            score <= self.threshold.value,
            score,
            self.threshold.value,
            predicted,
            None if names is None else tuple([names[k] for k in predicted.tolist()]),
            outputs.detections if isinstance(outputs, DetectorOutputs) else None,
        )

    def measure(self, known: Outputs, unknown: Outputs | None = None) -> ExpectedShares:
        """Measure the threshold on other rows than those it was chosen on."""
        level = self.expected.level
        other = None if unknown is None else _score(self.method, unknown, self.n_classes)
        rows = _score(self.method, known, self.n_classes)
        return rows.shares_at(self.threshold, other, level=level)

    def wrap(self, model: Any, *, settings: Settings = Settings()) -> "GuardedModel":  # noqa: B008 - it is frozen
        """Return the model with this guard: images in, decisions out.

        Args:
            model: A classifier from `wrap_classifier` or a detector from `wrap_detector`.
            settings: How to run the network, such as the device.
        """
        return GuardedModel(self, model, settings)

    def latency(self, outputs: Outputs, *, n_calls: int = 100) -> Latency:
        """Measure how long `check` takes for the first row of outputs, on this machine."""
        rows = outputs.rows() if isinstance(outputs, DetectorOutputs) else outputs
        if not len(rows):
            raise InvalidDataError("Expected outputs of at least one image to time, got none.")
        one, seconds = rows[torch.arange(len(rows)) == 0], []
        self.check(one)  # the first call allocates memory
        for _ in range(max(1, n_calls)):
            start = time.perf_counter()
            self.check(one)
            seconds.append(time.perf_counter() - start)
        return Latency(1e3 * float(np.median(seconds)), 1e3 * max(seconds), len(seconds))

    def save(self, path: str | PathLike[str]) -> None:
        """Save the guard without any code.

        Args:
            path: A file that ends in `.json`; the method gets the same name with `.safetensors`,
                and the head, where it is used, with `.head.safetensors`.
        """
        path = json_path(path)
        files = {"method": path.with_suffix(_SUFFIXES["method"])}
        save_method(self.method, files["method"])
        if self.head is not None:
            files["head"] = path.with_suffix(_SUFFIXES["head"])
            _save_head(self.head, files["head"])
        document = {
            "format": FORMAT,
            "threshold": asdict(self.threshold),
            "expected": _describe(self.expected),
            "n_classes": self.n_classes,
            "class_names": self.class_names,
            "sha256": {name: file_hash(file) for name, file in files.items()},
        }
        with replacing_text(path) as file:  # last, so that a JSON file is never without the others
            json.dump(document, file, indent=1, allow_nan=False)

    @classmethod
    def load(cls, path: str | PathLike[str], kinds: Sequence[type[Method]] = ()) -> "Guard":
        """Load a guard that `save` wrote; it decides as the saved one.

        Args:
            path: The JSON file.
            kinds: User-defined classes of methods that it may hold.
        """
        path = json_path(path)
        document = load_json(path)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            found = document.get("format") if isinstance(document, dict) else type(document)
            raise InvalidDataError(
                f"Expected a guard of the format {FORMAT!r} in {path}, got {found!r:.80}. Pass a "
                f"file that Guard.save wrote."
            )
        try:
            return _rebuild(path, document, kinds)
        except IncognitaError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidDataError(
                f"{path} is damaged ({type(error).__name__}); fit the guard and save it again."
            ) from error

    def to_onnx(self, path: str | PathLike[str], example: ClassifierOutputs) -> None:
        """Write score and decision as an ONNX file, for methods that are arithmetic on a row.

        Its inputs are `logits` and, if the method uses them, `features`, in float32; its outputs
        are `unknown_score`, `accepted` and `predicted`. It is run on the example before it is
        kept. Needs the extra `onnx`.

        Args:
            path: The file.
            example: Outputs of as many images as the file shall take at once.
        """
        _check_exportable(self.method, example)
        rows = self._rows(example)
        uses_features = Needs.FEATURES in self.method.all_needs
        columns = {"logits": rows.logits.float()}
        if uses_features and rows.features is not None:
            columns["features"] = rows.features.float()
        program = _exported(_Graph(self, rows), columns, self.method.title)
        with replacing(Path(path)) as unfinished:
            program.save(str(unfinished))
            _check_export(self, unfinished, columns, example)

    def _score(self, rows: "_CheckedOutputs") -> Float[Tensor, "n"]:
        """Score rows; what the method needs is checked once for rows with the same columns."""
        columns = rows.columns()
        if columns not in self._columns:
            self.method.check(rows)
            self._columns.add(columns)
        scores = self.method.score_rows(Rows(rows, self.method))
        self.method._check_scores(scores, len(rows))
        return scores

    def _rows(self, outputs: Any) -> "_CheckedOutputs":
        """Return the rows for the method, with the head that the threshold was chosen for."""
        if not isinstance(outputs, ClassifierOutputs):
            raise InvalidDataError(
                f"Expected ClassifierOutputs or DetectorOutputs to check, got "
                f"{type(outputs).__name__}. Wrap the logits: ClassifierOutputs(ids, logits)."
            )
        _check_classes(self.n_classes, outputs)
        rows = _CheckedOutputs.__new__(_CheckedOutputs)
        vars(rows).update(vars(outputs))
        if self.head is not None:
            vars(rows)["head"] = self.head
        return rows


@dataclass(frozen=True, eq=False)
class GuardedModel:
    """A model behind a guard: calling it with images returns a decision about each.

    Args:
        guard: The guard.
        model: A classifier or detector; its classes must be those of the guard.
        settings: How to run the network.
    """

    guard: Guard
    model: Any
    settings: Settings = Settings()  # noqa: RUF009 - it is frozen

    def __post_init__(self) -> None:
        names = getattr(self.model, "class_names", None)
        if names is None or not hasattr(self.model, "preprocess"):
            raise InvalidDataError(
                f"Expected a classifier or a detector to guard, got {type(self.model).__name__}. "
                f"Wrap the network by wrap_classifier or wrap_detector first."
            )
        if not getattr(self.model, "states_preprocessing", True):
            raise InvalidDataError(
                f"Expected a classifier with its preprocessing, got {self.model.name}, which "
                f"states none. Pass preprocess= to wrap_classifier."
            )
        self._check_names(tuple(names))

    def _check_names(self, names: tuple[str, ...]) -> None:
        expected, n = self.guard.class_names, self.guard.n_classes
        if names != (expected or names) or len(names) != n:
            raise InvalidDataError(
                f"Expected a model with the {n} classes of the guard "
                f"({', '.join(expected or ('not named',)):.80}), got {len(names)} "
                f"({', '.join(names):.80}). Fit a guard for this model."
            )

    def __repr__(self) -> str:
        return f"GuardedModel({self.model.name}, {self.guard!r})"

    def __call__(self, images: Any) -> GuardOutput:
        """Decide about one image or several.

        Args:
            images: A path, an RGB array [height, width, 3] of uint8 or a PIL image; or a list of
                them.
        """
        method = self.guard.method
        outputs = run_on_images(
            self.model,
            images,
            extra_outputs=method.extra_outputs(),
            layers=bool(_POOLED & method.all_needs),
            settings=self.settings,
        )
        decided = self.guard.check(outputs)
        names = self.model.class_names
        return decided._replace(names=tuple(names[k] for k in decided.predicted.tolist()))


class _OwnHead(Head):
    """A copy of a head that keeps its weights in float64, too, in which methods multiply."""

    def __post_init__(self) -> None:
        weight, bias = (t.detach().clone() for t in (self.weight, self.bias))
        vars(self).update(weight=weight, bias=bias, in_float64=(weight.double(), bias.double()))
        super().__post_init__()

    def weights_like(self, features: Tensor) -> tuple[Tensor, Tensor]:
        if features.dtype != torch.float64 or features.device != self.weight.device:
            return super().weights_like(features)
        exact: tuple[Tensor, Tensor] = vars(self)["in_float64"]
        return exact


class _CheckedOutputs(ClassifierOutputs):
    """Outputs that were checked when they were made; what a method derives is not checked again.

    Half of the time of one row would be such checks. The score of the row is checked instead.
    """

    def __post_init__(self) -> None:
        return

    def columns(self) -> tuple[Any, ...]:
        """Return the names and widths of the columns."""
        features = None if self.features is None else self.features.shape[1]
        named = (*(self.layers or ()), *(self.extra_outputs or ()))
        widths = tuple(t.shape[1] for t in self.layers.values()) if self.layers else ()
        return self.logits.shape[1], features, self.head is None, named, widths

    def reshaped(
        self,
        features: Float[Tensor, "n d"],
        logits: Float[Tensor, "n classes"],
        head: Head | None,
    ) -> "_CheckedOutputs":
        other = _CheckedOutputs.__new__(_CheckedOutputs)
        vars(other).update(vars(self), features=features, logits=logits, head=head)
        return other


def _choose(
    policy: str | float | Policy, known: ScoredRows, unknown: ScoredRows | None, level: float
) -> tuple[UnknownThreshold, ExpectedShares]:
    scores = None if unknown is None else unknown.unknown_score
    threshold = score_policy(policy).fit(known.unknown_score, scores)
    return threshold, known.shares_at(threshold, unknown, level=level)


def _score(method: Method, outputs: Outputs, n_classes: int) -> ScoredRows:
    rows = outputs.rows() if isinstance(outputs, DetectorOutputs) else outputs
    _check_classes(n_classes, rows)
    with torch.no_grad():
        score = method.score(rows).cpu().numpy().astype(np.float64)
    _check_scores(method, score, rows)
    if isinstance(outputs, DetectorOutputs):  # the labels of its rows are predicted classes
        return ScoredRows(score, n_units=len(np.unique(outputs.detections.image_index)))
    if rows.labels is None:
        return ScoredRows(score)
    return ScoredRows(score, (rows.logits.argmax(dim=1) != rows.labels).cpu().numpy())


def _check_method(method: Any) -> None:
    if not isinstance(method, Method):
        raise InvalidDataError(
            f"Expected a fitted method, got {method!r:.80}. Pass load_method(name).fit(known)."
        )
    method._check_fitted()


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InvalidDataError(f"Expected a level between 0 and 1, such as 0.95, got {level}.")


def _check_classes(n_classes: int, outputs: ClassifierOutputs) -> None:
    if outputs.logits.shape[1] != n_classes:
        raise InvalidDataError(
            f"Expected outputs with the {n_classes} classes of the guard, got "
            f"{outputs.logits.shape[1]}. Check outputs of the model it was fitted for."
        )


def _check_scores(method: Method, score: np.ndarray, rows: ClassifierOutputs) -> None:
    is_finite = np.isfinite(score)
    if not is_finite.all():
        place = int(is_finite.argmin())
        raise InvalidDataError(
            f"Expected a finite score of {method.title}, got {score[place]} for row {place} "
            f"({rows.image_ids[place]}). Reject that image, and check the model's outputs for it."
        )


# ------------------------------------------------------------------------------- on disk


def _save_head(head: Head, path: Path) -> None:
    from safetensors.torch import save

    with replacing(path) as unfinished:
        tensors = {"weight": head.weight.contiguous(), "bias": head.bias.contiguous()}
        unfinished.write_bytes(save(tensors))


def _describe(expected: ExpectedShares) -> dict[str, Any]:
    """Return the shares by name; NaN becomes null."""
    described: dict[str, Any] = {}
    for name, value in vars(expected).items():
        if isinstance(value, Share):
            share = value._asdict()
            described[name] = share | {"value": None if math.isnan(value.value) else value.value}
        else:
            described[name] = value
    return described


def _rebuild(path: Path, document: Mapping[str, Any], kinds: Sequence[type[Method]]) -> Guard:
    files = {name: path.with_suffix(suffix) for name, suffix in _SUFFIXES.items()}
    if "method" not in document["sha256"]:
        raise KeyError("sha256 of the method")
    for name, digest in document["sha256"].items():
        check_regular(files[name])
        if file_hash(files[name]) != digest:
            raise InvalidDataError(
                f"{files[name]} is damaged or of another guard than {path.name}; fit the guard and "
                f"save it again."
            )
    names, threshold = document["class_names"], document["threshold"]
    return Guard(
        load_saved_method(files["method"], kinds),
        UnknownThreshold(threshold["value"], threshold["policy"], threshold["metadata"]),
        _rebuild_expected(document["expected"]),
        document["n_classes"],
        None if names is None else tuple(names),
        _load_head(files["head"]) if "head" in document["sha256"] else None,
    )


def _rebuild_expected(described: Mapping[str, Any]) -> ExpectedShares:
    shares = {}
    for name in ("coverage", "false_alarms", "risk", "unknown_rejected"):
        share = described[name]
        if share is not None:
            value = math.nan if share["value"] is None else share["value"]
            shares[name] = Share(**(share | {"value": value}))
    return ExpectedShares(**shares, level=described["level"])


def _load_head(path: Path) -> Head:
    from safetensors.torch import load

    tensors = load(path.read_bytes())
    return Head(tensors["weight"], tensors["bias"])


def _load_result(path: Path) -> Mapping[str, Any]:
    """Load the JSON of a result, and compare the table beside it with its hash."""
    record = load_json(path)
    kind = record.get("format") if isinstance(record, dict) else type(record).__name__
    if not str(kind).startswith(_RESULT_FORMAT):
        raise InvalidDataError(
            f"Expected a result that `incognita run` stored in {path}, got {kind!r:.80}. Pass the "
            f"JSON file of one method."
        )
    missing = [key for key in ("method", "parameters", "identity") if key not in record]
    if missing or "classes" not in record["identity"]:
        raise InvalidDataError(
            f"{path} lacks {(*missing, 'its classes')[0]}; run the method again."
        )
    scores = path.with_suffix(".parquet")
    check_regular(scores)
    if record.get("scores_sha256") != file_hash(scores):  # polars may crash on a damaged table
        raise InvalidDataError(
            f"{scores} is not the table that was stored with {path.name}; run the method again."
        )
    return dict(record)


def _method_of(record: Mapping[str, Any], path: Path, method: Method | None) -> Method:
    """Return the method of a result: the one given, if it is that one, or one that learns nothing.

    A method is compared by its class and the values of all parameters, also of its scorer.
    """
    name, parameters = str(record["method"]), dict(record["parameters"])
    expected = parse_method(name)
    if method is None:
        own = {key: value for key, value in parameters.items() if key != "scorer"}
        method = replace(expected, **own)
        if Needs.KNOWN in method.all_needs or Needs.VALIDATION in method.all_needs:
            raise InvalidDataError(
                f"{name} learns from known outputs, which {path.name} does not hold. Pass the "
                f"fitted method as method."
            )
    _check_method(method)
    given = _parameters_of(method)
    if type(expected).__name__ != method.title or given != parameters:
        raise InvalidDataError(
            f"Expected {name} with {parameters} as in {path.name}, got {method.title} with "
            f"{given}. Pass the method of that result."
        )
    return method


def _parameters_of(method: Method) -> dict[str, Any]:
    """Return the parameters as a result holds them."""
    own: dict[str, Any] = json.loads(json.dumps(method.parameters(), default=str))
    scorer = getattr(method, "scorer", None)
    if isinstance(scorer, Method):
        own["scorer"] = {type(scorer).__name__: _parameters_of(scorer)}
    return own


def _load_scores(path: Path) -> tuple[ScoredRows, ScoredRows | None]:
    """Read the known and the unknown rows of the table of a result."""
    import polars

    frame = polars.read_parquet(path).with_columns(polars.col("group").cast(polars.String))
    known = frame.filter(polars.col("group") == KNOWN)
    unknown = frame.filter(~polars.col("group").is_in([KNOWN, ACCEPTED, SHIFTED, MIXED]))
    if not known.height:
        raise InvalidDataError(
            f"Expected rows of known images in {path}, got none. Use a result with such images."
        )
    return _scored_rows(known), _scored_rows(unknown) if unknown.height else None


def _scored_rows(frame: Any) -> ScoredRows:
    score = frame["unknown_score"].to_numpy().astype(np.float64)
    if "label" not in frame.columns:  # rows are boxes
        return ScoredRows(score, n_units=frame.select("set", "image_id").n_unique())
    if frame["label"].has_nulls():
        return ScoredRows(score)
    return ScoredRows(score, (frame["label"] != frame["predicted"]).to_numpy())


# ---------------------------------------------------------------------------------- ONNX


class _Graph(nn.Module):
    """A guard as a module of tensors, for export."""

    def __init__(self, guard: Guard, rows: ClassifierOutputs):
        super().__init__()
        self.guard, self.rows = guard, rows
        self.threshold: Tensor
        # a plain number would be rounded to float32
        self.register_buffer("threshold", torch.tensor(guard.threshold.value, dtype=torch.float64))

    def forward(
        self, logits: Tensor, features: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows = copy(self.rows)
        vars(rows).update(logits=logits, features=features)
        method = self.guard.method
        score = method.score_rows(Rows(rows, method))
        return score, score <= self.threshold, logits.argmax(dim=1)


def _check_exportable(method: Method, example: ClassifierOutputs) -> None:
    method.check(example)
    if method.extra_outputs() or method.all_needs & (_POOLED | Needs.MEMBERS) or example.heads:
        raise InvalidDataError(
            f"Expected a method on logits and features to export, got {method.title}, which uses "
            f"other outputs of the model. Use check, or choose a method such as energy."
        )


def _exported(graph: _Graph, columns: Mapping[str, Tensor], title: str) -> Any:
    need("onnxscript", extra="onnx", needed_by="Guard.to_onnx")
    try:
        with torch.no_grad(), _quiet():
            return torch.onnx.export(
                graph.eval(),
                tuple(columns.values()),
                input_names=list(columns),
                output_names=["unknown_score", "accepted", "predicted"],
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # the exporter raises many kinds
        raise _not_exportable(title, "torch cannot export its steps", error) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter, which prints pages about a method that it cannot export."""
    logging.disable(logging.CRITICAL)
    text = StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(text), redirect_stderr(text):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _not_exportable(title: str, why: str, error: Exception | None = None) -> InvalidDataError:
    cause = "" if error is None else f" ({type(error).__name__})"
    return InvalidDataError(
        f"{title} cannot be written as ONNX: {why}{cause}. Use check, or choose a method such as "
        f"energy."
    )


def _check_export(
    guard: Guard, path: Path, columns: Mapping[str, Tensor], example: ClassifierOutputs
) -> None:
    """Run the file and compare it with `check`."""
    runtime = need("onnxruntime", extra="onnx", needed_by="Guard.to_onnx")
    try:
        session = runtime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises classes of its own
        why = "onnxruntime lacks one of its steps in float64"
        raise _not_exportable(guard.method.title, why, error) from error
    score, _, _ = session.run(None, {name: column.numpy() for name, column in columns.items()})
    ours = guard.check(example).unknown_score
    gap = float(np.max(np.abs(score - ours) / np.maximum(1, np.abs(ours)), initial=0))
    if not gap <= _ONNX_ERROR:
        raise _not_exportable(guard.method.title, f"its scores would differ by {gap:.2g}")
