"""Numbers and names in sentences, facts about a run, and the footer that says how to repeat it."""

import math
from collections.abc import Iterable, Mapping, Sequence

from incognita._version import __version__
from incognita.report.charts import NO_VALUE
from incognita.results.evaluation import QUALITY, Evaluation
from incognita.results.method_result import MethodResult, identity_hash

INTERVAL = "± is half of the 95 % bootstrap interval over images; a click shows its bounds."


def percent(value: float) -> str:
    """Return a share in percent with one decimal; a dash where it is undefined.

    >>> percent(0.9169)
    '91.7'
    """
    return NO_VALUE if math.isnan(value) else f"{100 * value:.1f}"


def margin(low: float, high: float) -> str:
    """Return half the width of an interval of shares; nothing where there is no interval.

    >>> margin(0.90, 0.912), margin(float("nan"), float("nan"))
    ('± 0.6', '')
    """
    return "" if math.isnan(low) or math.isnan(high) else f"± {50 * (high - low):.1f}"


def with_margin(value: float, low: float, high: float, unit: str = "") -> str:
    """Return a share in percent with its margin, for a sentence.

    >>> with_margin(0.9, 0.89, 0.92, " %"), with_margin(0.9, float("nan"), float("nan"))
    ('90.0 ± 1.5 %', '90.0 without interval')
    """
    half = margin(low, high)
    return f"{percent(value)} {half}{unit}" if half else f"{percent(value)}{unit} without interval"


def joined(names: Iterable[str], *, limit: int = 6) -> str:
    """Return names as they stand in a sentence.

    >>> joined(["a"]), joined("abc"), joined("abcdefgh", limit=3)
    ('a', 'a, b and c', 'a, b, c and 5 more')
    """
    shown = list(names)
    if len(shown) > limit:
        shown = [*shown[:limit], f"{len(shown) - limit} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def run_facts(evaluation: Evaluation) -> tuple[tuple[str, str], ...]:
    """Return the model, the benchmark, the images and the date of a run."""
    first = next(iter(evaluation.methods.values()))
    found = {name: first.get(metric, "known") for name, metric in QUALITY[evaluation.row].items()}
    quality = {name: r for name, r in found.items() if not math.isnan(r.value)}
    finished = max(str(r.provenance.get("finished", "")) for r in evaluation.methods.values())
    bootstrap = f"95 % bootstrap over images, {first.identity.get('resamples', '?')} replicates"
    facts = {
        "model": evaluation.model_name,
        "benchmark": f"{evaluation.metadata['benchmark']} v{evaluation.metadata['version']}",
        "images": images_in_words(evaluation),
        **{name: with_margin(r.value, r.low, r.high, " %") for name, r in quality.items()},
        "intervals": bootstrap,
        "finished": finished[:10],
    }
    return tuple((label, text) for label, text in facts.items() if text)


def images_in_words(evaluation: Evaluation) -> str:
    """Return how many images each group has; nothing where a run does not hold them."""
    sizes: dict[str, int] = {}
    for scored in evaluation.sets:
        sizes[scored.group] = sizes.get(scored.group, 0) + len(scored)
    return ", ".join(f"{n:,} {group}" for group, n in sizes.items())


def run_footer(evaluations: Sequence[Evaluation]) -> tuple[tuple[str, str], ...]:
    """Return how to repeat the numbers of runs: commands, versions, hashes."""
    lines: list[tuple[str, str]] = []
    for evaluation in evaluations:
        records = list(evaluation.methods.values())
        lines += [("command", text) for text in _distinct(records, "command")]
        lines += [("versions", text) for text in dict.fromkeys(map(_versions, records))]
        hashes = {
            "weights": evaluation.metadata.get("weights"),
            "definition": str(evaluation.metadata.get("definition_hash") or "")[:16],
            "data": identity_hash(evaluation.metadata.get("data") or {}),
        }
        shown = ", ".join(f"{name} {value}" for name, value in hashes.items() if value)
        lines.append((f"hashes of {evaluation.model_name}", shown))
    return (*dict.fromkeys(lines), ("page", f"incognita {__version__}"))


def _distinct(records: Sequence[MethodResult], name: str) -> list[str]:
    found = dict.fromkeys(str(record.provenance.get(name) or "") for record in records)
    return [text for text in found if text]


def _versions(record: MethodResult) -> str:
    given: Mapping[str, object] = record.provenance
    names = [name for name in given if name not in ("command", "finished", "disclosure")]
    return ", ".join(f"{name} {given[name]}" for name in names if isinstance(given[name], str))


def n_of(n_shown: int, n_all: int) -> str:
    """Return how many are shown, for the end of a title; nothing where all are.

    >>> n_of(20, 1500), n_of(5, 5)
    (' (20 of 1,500 are shown)', '')
    """
    return f" ({n_shown:,} of {n_all:,} are shown)" if n_shown < n_all else ""


def parameters_in_words(parameters: Mapping[str, object]) -> str:
    """Return the parameters of a method as text.

    >>> parameters_in_words({"k": 5, "scorer": {"Energy": {"temperature": 1.0}}})
    'k = 5, scorer = Energy(temperature = 1.0)'
    """
    return ", ".join(f"{name} = {_parameter(v)}" for name, v in parameters.items()) or "none"


def _parameter(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name}({parameters_in_words(inner)})" if isinstance(inner, Mapping) else f"{name}"
            for name, inner in value.items()
        )
    return str(value)
