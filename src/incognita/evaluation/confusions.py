"""What a classifier calls images by, and how near in meaning that is to what they show.

Recalcati et al., Toward a Realistic Benchmark for Out-of-Distribution Detection, DSAA 2023,
section V. The similarity of the true and the predicted class is the mean of path and Wu-Palmer
similarity: Leacock-Chodorow is left out there, because it has no upper limit. The graph of
confusions has a node for each class of each data set, and an edge from a true class to every class
its images were called by.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars

from incognita.benchmarks.benchmark import ACCEPTED, KNOWN, SHIFTED
from incognita.containers.classes import plain
from incognita.errors import InvalidDataError, MissingDataError, UnknownNameError, count, printable
from incognita.evaluation.finished_runs import find_runs, load_run
from incognita.registry import need
from incognita.results.export import WIDTH, Report
from incognita.results.store import ResultStore
from incognita.semantics import (
    SynsetMap,
    load_overrides,
    load_synset_map,
    map_classes,
    similarities,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

N_SHOWN = 10  # best and worst classes, as figures 2 and 3 have them
N_CLUSTERS = 5


class ClassSimilarity(NamedTuple):
    """How near in meaning the predictions are, averaged over the images of a class."""

    set: str
    name: str
    n_images: int
    similarity: float


class Confusion(NamedTuple):
    """How many images of a class were called by the name of a known one."""

    set: str
    name: str
    predicted: str
    n_images: int
    similarity: float
    unknown_score: float | None


@dataclass(frozen=True, repr=False)
class ConfusionReport(Report):
    """Confusions of a classifier, with their meaning.

    Args:
        true_classes: Similarity of true classes with what their images are called (figure 2).
        predicted_classes: Of the classes that unknown images are called by (figure 3).
        confusions: Every pair of a true and a predicted class.
        edges: Those of them that are left in the graph.
        clusters: Nodes of the graph that are connected, the largest first.
        notes: What was left out, and whose meaning is not certain.
        inputs: The result and the options.
    """

    true_classes: tuple[ClassSimilarity, ...]
    predicted_classes: tuple[ClassSimilarity, ...]
    confusions: tuple[Confusion, ...]
    edges: tuple[Confusion, ...]
    clusters: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"ConfusionReport({len(self.true_classes)} classes, {len(self.edges)} confusions, "
            f"{len(self.clusters)} clusters)"
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        return {
            "true_classes": [row._asdict() for row in self.true_classes],
            "predicted_classes": [row._asdict() for row in self.predicted_classes],
            "edges": [row._asdict() for row in self.edges],
            "clusters": [list(nodes) for nodes in self.clusters],
            "notes": list(self.notes),
            "inputs": dict(self.inputs),
        }

    def records(self) -> list[dict[str, Any]]:
        """Return one record per true and predicted class."""
        return [row._asdict() for row in self.confusions]

    def headline(self) -> str:
        """Return whose confusions these are, and how many."""
        numbers = (
            f"{count(len(self.true_classes), 'true class', 'true classes')}, "
            f"{count(len(self.edges), 'confusion')} in {count(len(self.clusters), 'cluster')}"
        )
        named = [str(self.inputs[key]) for key in ("run", "method") if key in self.inputs]
        return f"{', '.join(named)}: {numbers}" if named else numbers

    def remarks(self) -> list[tuple[str, str]]:
        """Return the notes."""
        return [("note", note) for note in self.notes]

    def summary(self) -> str:
        """Return the best and the worst class, and the notes."""
        ends = (self.true_classes[0], self.true_classes[-1]) if self.true_classes else ()
        lines = [f"{row.set}: {row.name}  {100 * row.similarity:.1f} %" for row in ends]
        return "\n".join([self.headline(), *lines, *(f"note: {note}" for note in self.notes)])

    def table(self, *, width: int = WIDTH) -> "RenderableType":
        """Return the classes with the best and the worst similarity, and the largest clusters."""
        from rich.console import Group

        del width  # four narrow columns
        return Group(
            _class_table("similarity of true class and prediction", self.true_classes),
            _class_table("the same by prediction, unknown images", self.predicted_classes),
            _cluster_table(self.clusters[:N_CLUSTERS]),
        )

    def save_graph(self, path: Path) -> None:
        """Save the graph of confusions as GraphML, for Gephi, yEd or networkx."""
        networkx = need("networkx", extra="torch", needed_by="The graph")
        path.parent.mkdir(parents=True, exist_ok=True)
        graph = _graph(self.edges)
        names = {node: _xml_text(node) for node in graph}
        for values in graph.nodes.values():
            values |= {key: _xml_text(value) for key, value in values.items()}
        networkx.write_graphml(networkx.relabel_nodes(graph, names), path)


def study_confusions(
    frame: polars.DataFrame,
    class_names: Sequence[str],
    synsets: Mapping[str, str],
    *,
    min_images: int = 2,
) -> ConfusionReport:
    """Study what images are called by, from the table of a result.

    The graph leaves out, in this order: images of the known test set and shifted ones, whose
    mistakes are no question of meaning; true classes of the same name or the same synset as the
    prediction; pairs with fewer images than `min_images`; classes that are then alone.

    Args:
        frame: The Parquet table of a result.
        class_names: The known classes.
        synsets: Of every class that occurs, true or predicted.
        min_images: Images behind an edge.
    """
    rows, n_unnamed = _named_rows(frame, class_names)
    pairs = rows.group_by("set", "group", "source_class", "predicted_name").agg(
        polars.len().alias("n_images"), polars.col("unknown_score").mean()
    )
    pairs = pairs.sort("set", "source_class", "predicted_name")
    pairs = pairs.with_columns(similarity=polars.Series(_similarity(pairs, synsets)))
    is_unknown = ~polars.col("group").is_in([KNOWN, SHIFTED, ACCEPTED])
    edges = _pruned(pairs, synsets, min_images)
    notes = []
    if n_unnamed:
        notes.append(f"{count(n_unnamed, 'image')} left out: the result does not name their class")
    if n_unscored := rows["unknown_score"].null_count():
        notes.append(f"{count(n_unscored, 'image')} without a score: left out of mean scores")
    return ConfusionReport(
        _means(pairs, ["set", "source_class"]),
        _means(pairs.filter(is_unknown), ["predicted_name"]),
        _confusions(pairs),
        edges,
        _clusters(edges),
        tuple(notes),
        {"min_images": min_images},
    )


def study_run(
    path: Path,
    maps: Sequence[str] = (),
    *,
    overrides: Path | None = None,
    method: str | None = None,
    min_images: int = 2,
) -> ConfusionReport:
    """Study the confusions of a finished run.

    Args:
        path: The `--out` folder of a run, or one of its results.
        maps: Ready maps of class names, such as places365; the first that has a name decides.
        overrides: A TOML file with synsets of names, before all maps.
        method: Whose scores weigh the graph; by default the best method.
        min_images: Images behind an edge of the graph.
    """
    run = find_runs(path)[0]
    evaluation = load_run(run)
    if evaluation.row != "image":
        raise InvalidDataError(f"Expected a run of a classifier, got {run} of a detector.")
    record = evaluation.get(method) if method is not None else evaluation.results[0]
    scores = ResultStore(run.parents[2]).path(record.identity).with_suffix(".parquet")
    frame = polars.read_parquet(scores)
    if "source_class" not in frame.columns:
        raise MissingDataError(
            f"{scores} does not name the classes of images: an earlier version wrote it. Run the "
            f"benchmark again."
        )
    names = [str(name) for name in record.identity["classes"]]
    found = frame["source_class"].cast(polars.String).drop_nulls().unique().sort().to_list()
    synsets, notes = find_synsets([*names, *found], maps, overrides)
    report = study_confusions(frame, names, synsets, min_images=min_images)
    inputs = {
        "run": f"{evaluation.model_name} on {evaluation.metadata['benchmark']}",
        "result": str(scores),
        "method": str(record.title),
        "maps": list(maps),
    }
    return ConfusionReport(
        report.true_classes,
        report.predicted_classes,
        report.confusions,
        report.edges,
        report.clusters,
        (*report.notes, *notes),
        inputs | dict(report.inputs),
    )


def find_synsets(
    names: Sequence[str], maps: Sequence[str], overrides: Path | None = None
) -> tuple[dict[str, str], list[str]]:
    """Find the synset of each name in maps, and else by the rules; note what is not certain."""
    ready = [load_synset_map(name) for name in maps]
    distinct = list(dict.fromkeys(names))
    found = {name: s for name in distinct if (s := _in_maps(name, ready)) is not None}
    ruled = [name for name in distinct if name not in found]
    recorded = {} if overrides is None else load_overrides(overrides)
    named = {plain(name) for name in recorded}
    rest = [name for name in distinct if name in ruled or plain(name) in named]
    if not rest:
        return found, []
    unique = list({plain(name): name for name in rest}.values())
    mapped = map_classes(unique, overrides=recorded)
    by_name = {plain(row.name): row for row in mapped.classes}
    found |= {name: by_name[plain(name)].synset for name in rest}
    guessed = [row.name for row in mapped.ambiguous if row.name in ruled]
    if not guessed:
        return found, []
    shown = ", ".join(guessed[:N_SHOWN]) + (", …" if len(guessed) > N_SHOWN else "")
    return found, [
        f"{count(len(guessed), 'class', 'classes')} with several senses, of which the first is "
        f"taken: {shown}; name a map, or record them in overrides"
    ]


def _in_maps(name: str, ready: Sequence[SynsetMap]) -> str | None:
    for mapped in ready:
        try:
            return mapped[name].synset
        except UnknownNameError:
            continue
    return None


def _named_rows(
    frame: polars.DataFrame, class_names: Sequence[str]
) -> tuple[polars.DataFrame, int]:
    """Return the rows with the names of the true and of the predicted class."""
    names = polars.Series(list(class_names), dtype=polars.String)
    rows = frame.with_columns(
        polars.col("set", "group", "source_class").cast(polars.String),
        predicted_name=names.gather(frame["predicted"].cast(polars.UInt32)),
    )
    own = names.gather(frame["label"].cast(polars.UInt32))
    rows = rows.with_columns(source_class=polars.coalesce("source_class", own))
    named = rows.filter(polars.col("source_class").is_not_null())
    return named, len(rows) - len(named)


def _similarity(pairs: polars.DataFrame, synsets: Mapping[str, str]) -> np.ndarray:
    """Return the mean of path and Wu-Palmer similarity of each pair; 1 for the same synset."""
    true, predicted = pairs["source_class"].to_list(), pairs["predicted_name"].to_list()
    missing = sorted({name for name in [*true, *predicted] if name not in synsets})
    if missing:
        raise UnknownNameError(
            f"Expected a synset of every class, got none of {missing[0]!r} and "
            f"{len(missing) - 1} more. Name a map that has them."
        )
    rows, columns = sorted({synsets[n] for n in true}), sorted({synsets[n] for n in predicted})
    if not rows:
        return np.zeros(0)
    values = similarities(rows, columns)
    mean = (values.path + values.wup) / 2
    row_of = {synset: k for k, synset in enumerate(rows)}
    column_of = {synset: k for k, synset in enumerate(columns)}
    found = mean[[row_of[synsets[n]] for n in true], [column_of[synsets[n]] for n in predicted]]
    # nltk's Wu-Palmer of a synset with itself may be below 1
    is_same = [synsets[a] == synsets[b] for a, b in zip(true, predicted, strict=True)]
    return np.where(is_same, 1.0, found)


def _means(pairs: polars.DataFrame, by: list[str]) -> tuple[ClassSimilarity, ...]:
    """Average over images, the highest similarity first."""
    weighted = (polars.col("similarity") * polars.col("n_images")).sum()
    means = pairs.group_by(by).agg(
        polars.col("n_images").sum(), similarity=weighted / polars.col("n_images").sum()
    )
    means = means.sort(["similarity", *by], descending=[True, *(False for _ in by)])
    return tuple(
        ClassSimilarity(
            row.get("set", KNOWN), row[by[-1]], int(row["n_images"]), float(row["similarity"])
        )
        for row in means.iter_rows(named=True)
    )


def _confusions(pairs: polars.DataFrame) -> tuple[Confusion, ...]:
    columns = ["set", "source_class", "predicted_name", "n_images", "similarity", "unknown_score"]
    return tuple(Confusion(*row) for row in pairs.select(columns).iter_rows())


def _pruned(
    pairs: polars.DataFrame, synsets: Mapping[str, str], min_images: int
) -> tuple[Confusion, ...]:
    kept = pairs.filter(
        ~polars.col("group").is_in([KNOWN, SHIFTED]) & (polars.col("n_images") >= min_images)
    )
    return tuple(
        edge
        for edge in _confusions(kept)
        if plain(edge.name) != plain(edge.predicted)
        and synsets[edge.name] != synsets[edge.predicted]
    )


def _nodes(edge: Confusion) -> tuple[str, str]:
    """Return the nodes of a true and of a predicted class; a set may be called known, too."""
    own = f"set {edge.set}" if edge.set == KNOWN else edge.set
    return f"{own}: {edge.name}", f"{KNOWN}: {edge.predicted}"


def _xml_text(text: str) -> str:
    """Return text without the control characters that XML cannot hold."""
    return printable(text).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _graph(edges: Sequence[Confusion]) -> Any:
    networkx = need("networkx", extra="torch", needed_by="The graph")

    graph = networkx.DiGraph()
    for edge in edges:
        first, second = _nodes(edge)
        graph.add_node(first, set=edge.set, name=edge.name)
        graph.add_node(second, set=KNOWN, name=edge.predicted)
        graph.add_edge(first, second, weight=edge.n_images, similarity=edge.similarity)
        if edge.unknown_score is not None:
            graph.edges[first, second]["unknown_score"] = edge.unknown_score
    return graph


def _clusters(edges: Sequence[Confusion]) -> tuple[tuple[str, ...], ...]:
    """Return the nodes that are connected, the largest cluster first."""
    networkx = need("networkx", extra="torch", needed_by="The graph")
    found = networkx.weakly_connected_components(_graph(edges))
    return tuple(sorted((tuple(sorted(c)) for c in found), key=lambda c: (-len(c), c)))


def _class_table(title: str, rows: Sequence[ClassSimilarity]) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", title=title, title_justify="left")
    table.add_column("set")
    table.add_column("class")
    table.add_column("images", justify="right")
    table.add_column("similarity %", justify="right")
    shown = [*rows[:N_SHOWN], None, *rows[-N_SHOWN:]] if len(rows) > 2 * N_SHOWN else [*rows]
    for row in shown:
        if row is None:
            table.add_row("…")
            continue
        cells = (row.set, row.name, f"{row.n_images:,}", f"{100 * row.similarity:.1f}")
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _cluster_table(clusters: Sequence[Sequence[str]]) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, header_style="bold", title="largest clusters", title_justify="left"
    )
    table.add_column("classes", justify="right")
    table.add_column("such as")
    for nodes in clusters:
        table.add_row(str(len(nodes)), Text(", ".join(nodes[:N_CLUSTERS])))
    return table
