"""The contract of a method as checks on a small made-up network, for our methods and for yours.

`Toy` is that network: clusters of features, a linear head, layers and extra outputs.
"""

import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from incognita.containers import ClassifierOutputs, ExtraOutput, Head, Needs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import (
    AdaScaleStep,
    GramRows,
    InputStep,
    LogitsWithoutTopDirection,
    MahalanobisStep,
    Numerators,
    PerturbedLayers,
)
from incognita.methods.ensembles import join_members
from incognita.methods.method import Method
from incognita.methods.per_head import PerHead
from incognita.methods.saving import load_saved_method, save_method
from incognita.metrics import auroc

LAYERS = {"stem": 6, "stage1": 8, "stage2": 10}
BOX_LAYERS = {"latent/rpn": 12, "shortcut/1": 6, "shortcut/2": 8}
_FIRST = "fit and score"  # without it, nothing else can be checked

T = TypeVar("T")


class Toy:
    """A fixed world of `n_classes` clusters in `d` dimensions; unknown rows lie between them."""

    def __init__(self, n_classes: int = 4, d: int = 16, seed: int = 0, *, negative: bool = False):
        rng = torch.Generator().manual_seed(seed)
        self.n_classes, self.d, self.negative = n_classes, d, negative
        centers = torch.zeros(n_classes, d)
        for c in range(n_classes):
            centers[c, c % d :: n_classes] = 3.0
        self.centers = centers
        weight = centers / centers.norm(dim=1, keepdim=True).clamp_min(1e-9)
        weight = weight + 0.1 * torch.randn(n_classes, d, generator=rng)
        self.head = Head(weight, 0.1 * torch.randn(n_classes, generator=rng))
        self.mixers = {
            name: torch.randn(d, width, generator=rng) / d**0.5 for name, width in LAYERS.items()
        }

    def outputs(
        self, n: int, *, unknown: bool | str = False, seed: int = 1, prefix: str = ""
    ) -> ClassifierOutputs:
        """Rows of the clusters, or unknown ones.

        `True` lies between the clusters, `"faint"` in the direction of one but close to zero,
        `"aside"` in a direction that no class uses.
        """
        rng = torch.Generator().manual_seed(seed)
        labels = torch.arange(n) % self.n_classes
        noise = 0.5 * torch.randn(n, self.d, generator=rng)
        if unknown == "faint":
            features = 0.35 * self.centers[labels] + 0.3 * noise
        elif unknown == "aside":
            sign = 1.0 - 2.0 * (torch.arange(self.d) // self.n_classes % 2)
            features = self.centers[labels] * (1 + 0.6 * sign) + noise
        elif unknown:
            features = 0.8 * torch.rand(n, self.d, generator=rng) + noise * 0.6
        else:
            features = self.centers[labels] + noise
        if not self.negative:
            features = features.relu()
        layers = {name: features @ mixer for name, mixer in self.mixers.items()}
        ids = tuple(f"{prefix}{'u' if unknown else 'k'}{seed}-{k}" for k in range(n))
        return ClassifierOutputs(
            ids,
            self.head(features),
            features,
            None if unknown else labels,
            self.head,
            layers,
        )


def _given(part: T | None) -> T:
    """Return a part of the outputs, which the toy network always has."""
    assert part is not None
    return part


def as_boxes(outputs: ClassifierOutputs) -> ClassifierOutputs:
    """Add the layers of a detector, pooled over boxes."""
    features = _given(outputs.features)
    rng = torch.Generator().manual_seed(7)
    layers = {
        name: features @ torch.randn(features.shape[1], width, generator=rng)
        for name, width in BOX_LAYERS.items()
    }
    return replace(outputs, layers={**(outputs.layers or {}), **layers})


def of_heads(outputs: ClassifierOutputs, n_heads: int = 2) -> ClassifierOutputs:
    """Let the rows come from several heads in turn, all of them alike."""
    heads = (_given(outputs.head),) * n_heads
    return replace(outputs, head=None, heads=heads, head_index=torch.arange(len(outputs)) % n_heads)


def with_extra_outputs(
    outputs: ClassifierOutputs, extra_outputs: Sequence[ExtraOutput]
) -> ClassifierOutputs:
    """Add columns a pass might have recorded: steps help confident rows more, as they really do."""
    columns: dict[str, Tensor] = dict(outputs.extra_outputs or {})
    for extra in extra_outputs:
        columns |= {f"{extra.key}/{name}": t for name, t in _columns(extra, outputs).items()}
    return replace(outputs, extra_outputs=columns or None)


def _columns(extra: ExtraOutput, outputs: ClassifierOutputs) -> dict[str, Tensor]:
    logits, features, layers = outputs.logits, outputs.features, outputs.layers or {}
    if isinstance(extra, GramRows):
        return {
            name: torch.stack([(t.abs() + 0.1) ** (1 + 1 / p) for p in extra.powers], dim=1)
            for name, t in layers.items()
        }
    if isinstance(extra, InputStep):
        stepped = {"logits": logits * (1 + 50 * extra.epsilon)}
        return stepped if features is None else stepped | {"features": features * 1.01}
    if isinstance(extra, AdaScaleStep):
        return {"features": _given(features) * (1 - extra.epsilon * 0.1)}
    if isinstance(extra, LogitsWithoutTopDirection):
        return {"last": logits * 0.5, "previous": logits * 0.4}
    if isinstance(extra, Numerators):
        return {"h": logits * 0.3}
    if isinstance(extra, MahalanobisStep):
        t = layers[extra.layer]
        nearest = extra.means.to(t)[torch.cdist(t, extra.means.to(t)).argmin(dim=1)]
        return {"features": t + extra.epsilon * (nearest - t)}
    if isinstance(extra, PerturbedLayers):
        kept = {name: t for name, t in layers.items() if name in BOX_LAYERS}
        return {name: t * (1 - 20 * extra.epsilon) for name, t in kept.items()}
    raise _NoToyColumnsError(
        f"It needs the extra output {extra.key}, which the toy network does not have. Try it on a "
        f"network: incognita run terra/standard --methods FILE.py:Class."
    )


class _NoToyColumnsError(InvalidDataError):
    """An extra output that only a network can record."""


class Case:
    """A method, and the toy outputs that it is fitted to and scores.

    Args:
        method: Not fitted yet.
        toy: The network; by default one with four classes and 16 features.
        n_known: The number of rows to fit to.
    """

    def __init__(self, method: Method, toy: Toy | None = None, n_known: int = 400) -> None:
        self.method, self.toy = method, toy or Toy()
        known = self.toy.outputs(n_known, seed=1, prefix="train-")
        held_out = self.toy.outputs(80, seed=2, prefix="val-")
        self.known = self.equip(known, method.extra_outputs_to_fit("known"))
        self.validation = self.equip(held_out, method.extra_outputs_to_fit("validation"))

    def like(self, toy: Toy | None = None, **parameters: Any) -> "Case":
        """Return a new case of the same method, not fitted, with other parameters."""
        return Case(_unfitted(self.method, **parameters), toy or self.toy)

    def equip(
        self, outputs: ClassifierOutputs, extra_outputs: Sequence[ExtraOutput]
    ) -> ClassifierOutputs:
        """Add what the method needs beside logits, features and layers."""
        if self.method.all_needs & (Needs.LATENT | Needs.SHORTCUTS):
            outputs = as_boxes(outputs)
        if isinstance(self.method, PerHead):
            outputs = of_heads(outputs)
        outputs = with_extra_outputs(outputs, extra_outputs)
        if Needs.MEMBERS in self.method.all_needs:
            other = replace(outputs, logits=outputs.logits * 0.9 + 0.05)
            outputs = join_members([outputs, other])
        return outputs

    def fit(self) -> "Case":
        """Fit the method to the known rows."""
        self.method.fit(self.known, self.validation)
        return self

    def outputs(self, n: int, **options: Any) -> ClassifierOutputs:
        """Return rows to score."""
        return self.equip(self.toy.outputs(n, **options), self.method.extra_outputs())

    def score(self, outputs: ClassifierOutputs) -> Tensor:
        """Score rows."""
        return self.method.score(outputs)


def _unfitted(method: Method, **parameters: Any) -> Method:
    scorer = getattr(method, "scorer", None)
    if isinstance(scorer, Method) and "scorer" in {field.name for field in fields(method)}:
        parameters.setdefault("scorer", _unfitted(scorer))
    return replace(method, **parameters)


# ------------------------------------------------------------------------------- the checks
# Each takes a fitted case and returns what is wrong in one sentence, or None.


class Doubt(str):
    """What a reader should look at, though it may be as intended."""

    __slots__ = ()


Check = Callable[[Case], str | None]
_UNKNOWN_KINDS = (True, "faint", "aside")  # of the toy: each method looks for one of them
_CLEAR, _OFTEN = 0.75, 0.45  # AUROC of the best kind, and on average: that of chance, less some
_FEWEST_SCORES = 20  # different scores of 40 rows whose logits lie far apart


def higher_is_more_unknown(case: Case) -> str | None:
    """Check the orientation: rows of no class score higher than rows of a class."""
    known = case.score(case.outputs(200, seed=3))
    values = []
    for kind in _UNKNOWN_KINDS:
        unknown = case.score(case.outputs(200, seed=4, unknown=kind))
        scores = torch.cat([known, unknown]).double().numpy()
        values.append(auroc(scores, np.repeat([False, True], 200)))
    if max(values) >= _CLEAR and np.mean(values) >= _OFTEN:
        return None
    places = "between the classes, near zero and in unused directions"
    shown = f"AUROC {', '.join(f'{value:.2f}' for value in values)} of unknown rows {places}"
    if max(values) >= _CLEAR:
        return Doubt(f"Unknown rows of one kind score higher, others lower ({shown}). Compare.")
    if min(values) <= 1 - _CLEAR:
        return f"Known rows score higher than unknown rows ({shown}). Return the negative."
    return f"Unknown rows score no higher than known rows ({shown}). Look at what score_rows reads."


def scores_are_finite(case: Case) -> str | None:
    """Check that there is one finite float64 per row."""
    score = case.score(case.outputs(7, seed=3))
    if score.dtype != torch.float64:
        return f"Expected float64 scores, got {score.dtype}. Compute with rows.logits.double()."
    return _not_finite(score, "seven ordinary rows")


def no_rows_are_scored(case: Case) -> str | None:
    """Check that zero rows give zero scores."""
    none = case.outputs(4, seed=3)[torch.zeros(4, dtype=torch.bool)]
    shape = tuple(case.score(none).shape)
    return None if shape == (0,) else f"Expected no score for no rows, got the shape {shape}."


def zeros_are_scored(case: Case) -> str | None:
    """Check that rows of zeros, such as those of a black image, have finite scores."""
    blank = _scaled(case.outputs(3, seed=3), torch.zeros(3, 1))
    return _not_finite(case.score(blank), "rows of zeros; keep norms above 0 before dividing")


def ties_are_ties(case: Case) -> str | None:
    """Check that equal rows score the same, and rows far from a boundary do not."""
    outputs = case.outputs(40, seed=3)
    first = case.score(outputs[torch.arange(40) < 1])
    same = [case.score(outputs[torch.arange(40) < 1]) for _ in range(2)]
    if any(not torch.equal(first, again) for again in same):
        return "One row has several scores. Draw no random numbers in score_rows."
    n_distinct = max(len(set(case.score(rows).tolist())) for rows in _confident(outputs))
    if n_distinct >= _FEWEST_SCORES:
        return None
    return (
        f"40 confident rows have {n_distinct} different scores. A float32 softmax is 1 for all of "
        f"them: use logsumexp, or compute with rows.logits.double()."
    )


def fits_are_repeatable(case: Case) -> str | None:
    """Check that a second fit to the same rows gives the same scores."""
    outputs = case.outputs(50, seed=3)
    again = case.like().fit()
    if torch.equal(case.score(outputs), again.score(outputs)):
        return None
    return (
        "Two fits to the same rows give different scores. Draw random numbers from "
        "torch.Generator().manual_seed(seed)."
    )


def batches_do_not_matter(case: Case) -> str | None:
    """Check that a row scores the same whatever rows stand beside it."""
    outputs = case.outputs(60, seed=3)
    keep = torch.arange(60) % 3 == 0
    whole, part = case.score(outputs), case.score(outputs[keep])
    return _differ(
        whole[keep], part, "The score of a row depends on the rows beside it. Fit what you average"
    )


def inputs_stay_unchanged(case: Case) -> str | None:
    """Check that neither fitting nor scoring writes to the outputs."""
    fresh = case.like()
    outputs = fresh.equip(case.toy.outputs(30, seed=3), case.method.extra_outputs())
    parts = {"known": fresh.known, "validation": fresh.validation, "scored": outputs}
    before = {part: {n: t.clone() for n, t in _tensors(given)} for part, given in parts.items()}
    fresh.fit().score(outputs)
    for part, given in parts.items():
        for name, tensor in _tensors(given):
            if not torch.equal(tensor, before[part][name]):
                return (
                    f"It writes to {name} of the {part} outputs, which other methods read. Clone "
                    f"before changing in place."
                )
    return None


def saved_methods_score_the_same(case: Case) -> str | None:
    """Check that a saved and loaded method gives the same scores."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "method.safetensors"
        save_method(case.method, path)
        loaded = load_saved_method(path, kinds=_kinds(case.method))
    outputs = case.outputs(50, seed=3)
    if loaded.parameters() != case.method.parameters():
        return f"Saved with {case.method.parameters()}, loaded with {loaded.parameters()}."
    if torch.equal(case.score(outputs), loaded.score(outputs)):
        return None
    return (
        "A saved and loaded method scores differently. Keep what is learned in attributes that "
        "end in an underscore."
    )


def one_class_is_enough_or_refused(case: Case) -> str | None:
    """Check that a network with one class has finite scores, or is refused with a sentence."""
    single = case.like(Toy(n_classes=1, d=16))
    try:
        score = single.fit().score(single.outputs(10, seed=3))
    except InvalidDataError:
        return None
    return _not_finite(score, "a network with one class; score them or raise InvalidDataError")


def absent_classes_do_no_harm(case: Case) -> str | None:
    """Check that a class without training rows gives finite scores."""
    fresh = case.like()
    fresh.known, fresh.validation = (
        part if part.labels is None else part[part.labels != 2]
        for part in (fresh.known, fresh.validation)
    )
    return _not_finite(
        fresh.fit().score(fresh.outputs(20, seed=3)), "a class without training rows"
    )


def negative_features_are_scored(case: Case) -> str | None:
    """Check that features of a network without ReLU give finite scores."""
    fresh = case.like(Toy(negative=True)).fit()
    rows = (fresh.outputs(100, seed=3), fresh.outputs(100, seed=4, unknown=True))
    return _not_finite(torch.cat([fresh.score(part) for part in rows]), "negative features")


def few_dimensions_are_enough(case: Case) -> str | None:
    """Check that three features and three classes give finite scores."""
    fresh = case.like(Toy(n_classes=3, d=3)).fit()
    return _not_finite(fresh.score(fresh.outputs(20, seed=3)), "three features")


def half_precision_is_enough(case: Case) -> str | None:
    """Check that bfloat16 outputs score as the same numbers in float32 do."""
    scores = []
    for dtype in (torch.bfloat16, torch.float32):
        fresh = case.like()
        fresh.known, fresh.validation = (
            _rounded(part, dtype) for part in (fresh.known, fresh.validation)
        )
        fresh.fit()
        scores.append(fresh.score(_rounded(fresh.outputs(40, seed=3), dtype)).double())
    if problem := _not_finite(scores[0], "bfloat16 outputs"):
        return problem
    with np.errstate(invalid="ignore"):  # of scores that are all equal
        correlation = float(np.corrcoef(scores[0].numpy(), scores[1].numpy())[0, 1])
    if correlation > 0.99:
        return None
    return (
        f"Scores of bfloat16 outputs correlate {correlation:.2f} with those of the same numbers "
        f"in float32. Compute with rows.logits.double()."
    )


def double_precision_gives_the_same(case: Case) -> str | None:
    """Check that float32 loses little against the spread of the scores."""
    outputs = case.outputs(100, seed=3)
    single, double = case.score(outputs).double(), case.score(_cast(outputs, torch.float64))
    spread = max(float(double.double().std()), 1e-12)
    return _differ(
        double.double(),
        single,
        "Scores of float32 outputs differ from those in float64. Compute with .double()",
        relative=1e-4,
        absolute=1e-4 * spread,
    )


def unfitted_methods_say_so(case: Case) -> str | None:
    """Check that scoring before fitting raises a sentence, if the method learns."""
    if Needs.KNOWN not in case.method.all_needs:
        return None
    try:
        fresh = case.like()
        fresh.score(fresh.outputs(3, seed=3))
    except InvalidDataError:
        return None
    return (
        "It scores without having been fitted, though it declares Needs.KNOWN. Set what it learns "
        "in fit_statistics or finalize."
    )


def searches_are_sound(case: Case) -> str | None:
    """Check that searched parameters exist, act, and are refitted as `invalidates` says."""
    for parameter, values in case.method.search_space.items():
        if parameter not in case.method.parameters():
            return f"search_space names {parameter!r}, which is no field of the class. Add it."
        if problem := _search_problem(case, parameter, values):
            return problem
    return None


def _search_problem(case: Case, parameter: str, values: Sequence[Any]) -> str | None:
    outputs = case.outputs(30, seed=3)
    before = case.score(outputs)
    n_allowed = 0
    for value in values:
        try:
            changed = case.method.with_parameters(case.known, case.validation, **{parameter: value})
            other = case.like(**{parameter: value}).fit()
        except InvalidDataError:  # such as more neighbors than rows
            continue
        n_allowed += 1
        if (
            case.method.fits_on_extra_outputs_of
        ):  # they belong to the parameters they were fitted to
            continue
        rows = other.outputs(40, seed=3)
        what = (
            f"{parameter} = {value!r} in a search gives other scores than a new fit. List it in "
            f"invalidates"
        )
        if problem := _differ(other.score(rows), changed.score(rows), what):
            return problem
    if not torch.equal(case.score(outputs), before):
        return f"Searching {parameter} changes the first method. Set new tensors, not in place."
    if not n_allowed:
        return f"No value of {parameter} in search_space can be fitted to 400 rows."
    return None


def searched_parameters_act(case: Case) -> str | None:
    """Check that some value of each searched parameter changes a score."""
    # many classes and dimensions, and negative values, so that no value of a grid is cut to another
    wide = Toy(n_classes=15, d=300, negative=True)
    for parameter, values in case.method.search_space.items():
        scores = []
        for value in values:
            try:
                other = case.like(wide, **{parameter: value}).fit()
            except InvalidDataError:  # such as more neighbors than rows
                continue
            scores.append(other.score(other.outputs(40, seed=3)))
        if len(scores) < 2 or all(
            torch.allclose(scores[0], score, rtol=1e-9, atol=0) for score in scores[1:]
        ):
            return f"No value of {parameter} in search_space changes a score. Use it, or drop it."
    return None


CONTRACT: Mapping[str, Check] = {
    "orientation": higher_is_more_unknown,
    "finite": scores_are_finite,
    "no rows": no_rows_are_scored,
    "rows of zeros": zeros_are_scored,
    "ties": ties_are_ties,
    "deterministic": fits_are_repeatable,
    "batches": batches_do_not_matter,
    "inputs unchanged": inputs_stay_unchanged,
    "saving": saved_methods_score_the_same,
    "one class": one_class_is_enough_or_refused,
    "absent class": absent_classes_do_no_harm,
    "negative features": negative_features_are_scored,
    "few dimensions": few_dimensions_are_enough,
    "half precision": half_precision_is_enough,
    "double precision": double_precision_gives_the_same,
    "not fitted": unfitted_methods_say_so,
    "search": searches_are_sound,
    "search acts": searched_parameters_act,
}


class Outcome(NamedTuple):
    """What one check found.

    Args:
        check: Its name in `CONTRACT`.
        status: `pass`, `fail`, `note` for what may be as intended, or `not checked`.
        sentence: What the check asks for, or what is wrong and where.
    """

    check: str
    status: str
    sentence: str


def check_method(method: Method) -> list[Outcome]:
    """Check a method against the contract that all registered methods keep.

    Nothing that the method raises leaves this function. Where it needs an extra output of its own,
    which the toy network does not have, nothing can be checked.

    >>> from incognita.methods import load_method
    >>> {outcome.status for outcome in check_method(load_method("energy"))}
    {'pass'}
    """
    return list(_outcomes(method))


def _outcomes(method: Method) -> Iterator[Outcome]:
    try:
        case = Case(_unfitted(method)).fit()
        case.score(case.outputs(7, seed=3))
    except _NoToyColumnsError as error:
        yield from (Outcome(name, "not checked", str(error)) for name in (_FIRST, *CONTRACT))
        return
    except (Exception, SystemExit) as error:  # a user's class may fail in any way
        yield Outcome(_FIRST, "fail", _raised(error))
        why = "It cannot be fitted, or does not score."
        yield from (Outcome(name, "not checked", why) for name in CONTRACT)
        return
    yield Outcome(_FIRST, "pass", "Rows can be fitted to, and scored.")
    for name, check in CONTRACT.items():
        yield outcome_of(name, check, case)


def outcome_of(name: str, check: Check, case: Case) -> Outcome:
    """Run one check on a fitted case; an error of the method is an outcome, too."""
    try:
        problem = check(case)
    except (Exception, SystemExit) as error:  # a user's class may fail in any way
        problem = _raised(error)
    asked = re.sub("^Check (that )?", "", str(check.__doc__))
    asked = asked[0].upper() + asked[1:]
    if problem is None:
        return Outcome(name, "pass", asked)
    return Outcome(name, "note" if isinstance(problem, Doubt) else "fail", str(problem))


def _raised(error: BaseException) -> str:
    """Return what was raised, and the last line outside of this package and of torch."""
    message = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    inside = (f"{Path(__file__).parents[1]}", f"{Path(torch.__file__).parent}")
    theirs = [frame for frame in frames if not frame.filename.startswith(inside)]
    where = theirs[-1] if theirs else frames[-1]
    end = "" if message.endswith((".", "!", "?")) else "."
    return f"{message}{end} In {Path(where.filename).name}, line {where.lineno} ({where.name})."


def _not_finite(score: Tensor, what: str) -> str | None:
    n_wrong = int((~score.isfinite()).sum())
    if not n_wrong:
        return None
    return f"{n_wrong} of {len(score)} scores are NaN or infinite for {what}."


def _differ(
    expected: Tensor, got: Tensor, what: str, *, relative: float = 1e-6, absolute: float = 1e-9
) -> str | None:
    if torch.allclose(got, expected, rtol=relative, atol=absolute):
        return None
    return f"{what}: scores differ by up to {float((got - expected).abs().max()):.2g}."


def _kinds(method: Method) -> tuple[type[Method], ...]:
    scorer = getattr(method, "scorer", None)
    return (type(method), *(_kinds(scorer) if isinstance(scorer, Method) else ()))


def _tensors(outputs: ClassifierOutputs) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors of the outputs by name."""
    for name in ("logits", "features", "labels"):
        if (tensor := getattr(outputs, name)) is not None:
            yield name, tensor
    for group in (outputs.layers, outputs.extra_outputs):
        yield from (group or {}).items()
    for k, head in enumerate(head for head in (outputs.head, *outputs.heads) if head is not None):
        yield f"weight of head {k}", head.weight
        yield f"bias of head {k}", head.bias


def _changed(
    outputs: ClassifierOutputs, change: Callable[[Tensor], Tensor], heads: Callable[[Head], Head]
) -> ClassifierOutputs:
    """Apply a change to each table of rows, and another to the heads."""
    layers, extra = (
        None if group is None else {key: change(t) for key, t in group.items()}
        for group in (outputs.layers, outputs.extra_outputs)
    )
    return replace(
        outputs,
        logits=change(outputs.logits),
        features=None if outputs.features is None else change(outputs.features),
        head=None if outputs.head is None else heads(outputs.head),
        heads=tuple(map(heads, outputs.heads)),
        layers=layers,
        extra_outputs=extra,
    )


def _scaled(outputs: ClassifierOutputs, scale: Tensor) -> ClassifierOutputs:
    """Multiply each row of each table by a number."""
    return _changed(
        outputs, lambda t: t * scale.view(-1, *[1] * (t.ndim - 1)), heads=lambda head: head
    )


def _confident(outputs: ClassifierOutputs) -> tuple[ClassifierOutputs, ClassifierOutputs]:
    """Return logits so far apart that a float32 softmax is 1 for all rows.

    Twice: with all other columns as large, and as they are, because far from all known features
    some scores are equal by definition.
    """
    scale = torch.linspace(5.0, 9.0, len(outputs))
    far = _scaled(outputs, scale)
    return far, replace(outputs, logits=far.logits)


def _cast(outputs: ClassifierOutputs, dtype: torch.dtype) -> ClassifierOutputs:
    def cast(head: Head) -> Head:
        return Head(head.weight.to(dtype), head.bias.to(dtype))

    return _changed(outputs, lambda t: t.to(dtype), cast)


def _rounded(outputs: ClassifierOutputs, dtype: torch.dtype) -> ClassifierOutputs:
    """Round all numbers to bfloat16, and return them in another type."""
    return _cast(_cast(outputs, torch.bfloat16), dtype)
