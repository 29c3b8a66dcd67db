"""Confusions with their meaning, against plain loops and nltk's definitions in the oracles."""

import json
import math

import networkx
import numpy as np
import polars
import pytest
from typer.testing import CliRunner

import incognita
from incognita.cli.app import app
from incognita.errors import IncognitaError, MissingDataError, UnknownNameError
from incognita.evaluation.confusions import find_synsets, study_confusions, study_run
from incognita.semantics import path_similarity, wup_similarity

KNOWN = ["dog", "cat", "bus"]
SYNSETS = {
    "dog": "dog.n.01", "cat": "cat.n.01", "bus": "bus.n.01", "wolf": "wolf.n.01",
    "truck": "truck.n.01", "motorbus": "bus.n.01", "Dog": "dog.n.01",
}  # fmt: skip


def frame(n: int = 300, seed: int = 0) -> polars.DataFrame:
    rng = np.random.default_rng(seed)
    sets = {
        "test": ("known", ["dog", "cat", "bus"]),
        "kin": ("accepted", ["motorbus", "Dog"]),
        "wild": ("far", ["wolf", "truck"]),
    }
    rows = []
    for k in range(n):
        name = rng.choice(list(sets))
        group, classes = sets[name]
        true = str(rng.choice(classes))
        label = KNOWN.index(true) if group == "known" else None
        rows.append(
            {
                "set": name, "group": group, "image_id": str(k), "label": label,
                "source_class": true, "predicted": int(rng.integers(3)),
                "unknown_score": float(rng.random()),
            }
        )  # fmt: skip
    return polars.DataFrame(rows, schema_overrides={"label": polars.Int32})


def slow_similarity(a: str, b: str) -> float:
    if SYNSETS[a] == SYNSETS[b]:
        return 1.0
    one, two = SYNSETS[a], SYNSETS[b]
    return (path_similarity(one, two) + wup_similarity(one, two)) / 2


def test_similarity_of_classes_is_the_mean_over_images():
    table = frame()
    report = study_confusions(table, KNOWN, SYNSETS)
    assert len(report.true_classes) == 7
    for row in report.true_classes:
        values = [
            slow_similarity(row.name, KNOWN[r["predicted"]])
            for r in table.iter_rows(named=True)
            if (r["set"], r["source_class"]) == (row.set, row.name)
        ]
        assert row.n_images == len(values)
        assert row.similarity == pytest.approx(np.mean(values), abs=1e-12)
    order = [row.similarity for row in report.true_classes]
    assert order == sorted(order, reverse=True)


def test_predictions_are_averaged_over_unknown_images_alone():
    table = frame()
    report = study_confusions(table, KNOWN, SYNSETS)
    for row in report.predicted_classes:
        values = [
            slow_similarity(r["source_class"], row.name)
            for r in table.iter_rows(named=True)
            if r["group"] == "far" and KNOWN[r["predicted"]] == row.name
        ]
        assert row.similarity == pytest.approx(np.mean(values), abs=1e-12)
        assert row.n_images == len(values)


@pytest.mark.parametrize("min_images", [1, 20, 1000])
def test_the_graph_is_pruned_as_the_paper_does(min_images):
    table = frame()
    report = study_confusions(table, KNOWN, SYNSETS, min_images=min_images)
    counts: dict[tuple[str, str, str], list[float]] = {}
    for r in table.iter_rows(named=True):
        key = (r["set"], r["source_class"], KNOWN[r["predicted"]])
        counts.setdefault(key, []).append(r["unknown_score"])
    expected = {
        key: scores
        for key, scores in counts.items()
        if key[0] != "test"
        and len(scores) >= min_images
        and key[1].lower() != key[2]
        and SYNSETS[key[1]] != SYNSETS[key[2]]
    }
    assert {(e.set, e.name, e.predicted) for e in report.edges} == set(expected)
    for edge in report.edges:
        scores = expected[edge.set, edge.name, edge.predicted]
        assert edge.n_images == len(scores)
        assert edge.unknown_score == pytest.approx(np.mean(scores))


def test_graphml_can_be_read_again_and_clusters_are_connected(tmp_path):
    report = study_confusions(frame(40), KNOWN, SYNSETS, min_images=3)
    report.save_graph(tmp_path / "graph.graphml")
    graph = networkx.read_graphml(tmp_path / "graph.graphml")
    assert graph.number_of_edges() == len(report.edges)
    assert sorted(n for cluster in report.clusters for n in cluster) == sorted(graph.nodes)
    for cluster in report.clusters:
        assert networkx.is_weakly_connected(graph.subgraph(cluster))
    weights = [data["weight"] for _, _, data in graph.edges(data=True)]
    assert sorted(weights) == sorted(edge.n_images for edge in report.edges)


def test_names_that_xml_cannot_hold_are_written_readably(tmp_path):
    table = frame(60).with_columns(polars.col("source_class").str.replace("wolf", "wo\x01lf"))
    report = study_confusions(table, KNOWN, SYNSETS | {"wo\x01lf": "wolf.n.01"}, min_images=1)
    report.save_graph(tmp_path / "graph.graphml")
    graph = networkx.read_graphml(tmp_path / "graph.graphml")
    assert graph.number_of_edges() == len(report.edges)
    assert "wild: wo\\x01lf" in graph.nodes
    assert graph.nodes["wild: wo\\x01lf"]["name"] == "wo\\x01lf"


def test_images_without_a_score_are_left_out_of_mean_scores(tmp_path):
    without = polars.when(polars.col("source_class") == "wolf").then(None)
    table = frame().with_columns(unknown_score=without.otherwise(polars.col("unknown_score")))
    report = study_confusions(table, KNOWN, SYNSETS)
    wolves = [edge for edge in report.edges if edge.name == "wolf"]
    assert {edge.unknown_score for edge in wolves} == {None}
    n = len(table.filter(polars.col("source_class") == "wolf"))
    assert report.notes == (f"{n} images without a score: left out of mean scores",)
    report.save_graph(tmp_path / "graph.graphml")
    graph = networkx.read_graphml(tmp_path / "graph.graphml")
    assert "unknown_score" not in graph.edges["wild: wolf", "known: dog"]
    assert "unknown_score" in graph.edges["wild: truck", "known: dog"]


def test_a_set_called_known_has_nodes_of_its_own():
    table = frame().with_columns(polars.col("set").str.replace("wild", "known"))
    report = study_confusions(table, KNOWN, SYNSETS, min_images=1)
    nodes = {node for cluster in report.clusters for node in cluster}
    assert {"set known: wolf", "set known: truck", "known: dog"} <= nodes
    assert "known: wolf" not in nodes


def test_nothing_confused_is_an_empty_graph(tmp_path):
    table = frame().filter(polars.col("group") == "known")
    report = study_confusions(table, KNOWN, SYNSETS)
    assert report.edges == ()
    assert report.clusters == ()
    assert report.predicted_classes == ()
    report.save_graph(tmp_path / "empty.graphml")
    assert report.headline() == "3 true classes, 0 confusions in 0 clusters"


def test_images_without_a_class_are_counted():
    table = frame().with_columns(
        polars.when(polars.col("set") == "wild")
        .then(None)
        .otherwise(polars.col("source_class"))
        .alias("source_class")
    )
    n = len(table.filter(polars.col("set") == "wild"))
    report = study_confusions(table, KNOWN, SYNSETS)
    assert report.notes == (f"{n} images left out: the result does not name their class",)


def test_labels_name_the_class_where_the_data_set_does_not():
    table = frame().filter(polars.col("group") == "known")
    without = table.with_columns(source_class=polars.lit(None, polars.String))
    one, two = (study_confusions(t, KNOWN, SYNSETS) for t in (table, without))
    assert one.true_classes == two.true_classes


def test_a_class_without_a_synset_is_named():
    with pytest.raises(UnknownNameError, match="none of 'wolf'"):
        study_confusions(frame(), KNOWN, {k: v for k, v in SYNSETS.items() if k != "wolf"})


def test_names_are_looked_up_in_maps_then_by_rules(tmp_path):
    found, notes = find_synsets(["mouse", "skis", "crane"], ["coco"])
    assert found == {"mouse": "mouse.n.04", "skis": "ski.n.01", "crane": "crane.n.01"}
    assert len(notes) == 1
    assert "crane" in notes[0]
    (tmp_path / "mine.toml").write_text('crane = "crane.n.05"\n')
    found, notes = find_synsets(["mouse", "crane"], ["coco"], tmp_path / "mine.toml")
    assert found["crane"] == "crane.n.05"
    assert found["mouse"] == "mouse.n.04"


def test_overrides_come_on_top_of_maps(tmp_path):
    (tmp_path / "mine.toml").write_text('disc = "disk.n.02"\n')
    found, notes = find_synsets(["four-star", "disc"], ["terra"], tmp_path / "mine.toml")
    assert found == {"four-star": "star.n.05", "disc": "disk.n.02"}
    assert notes == []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("facets")
    incognita.evaluate(
        None, "terra/facets", "msp, energy", limit=60, n_resamples=0, out=out / "results"
    )
    return out


def test_a_run_on_terra_is_studied_from_its_files(run, tmp_path):
    options = ["--map", "terra", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["confusions", str(run), *options], catch_exceptions=False)
    assert done.exit_code == 0
    assert "similarity of true class and prediction" in done.stdout
    assert "terra-classifier on terra/facets, " in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "confusions.csv", "confusions.graphml", "confusions.json"
    ]  # fmt: skip
    document = json.loads((tmp_path / "confusions.json").read_text())
    assert document["inputs"]["maps"] == ["terra"]
    assert {row["set"] for row in document["true_classes"]} >= {"test", "kin", "far"}
    values = [row["similarity"] for row in document["true_classes"]]
    assert all(0 < value <= 1 and math.isfinite(value) for value in values)
    assert document["notes"] == []


def test_known_images_are_nearer_in_meaning_than_unknown_ones(run):
    report = study_run(run, ["terra"])
    mean = {
        name: np.mean([row.similarity for row in report.true_classes if row.set == name])
        for name in ("test", "kin", "far")
    }
    assert mean["test"] > mean["kin"] > mean["far"]


def test_wrong_runs_get_one_sentence(run, tmp_path):
    with pytest.raises(MissingDataError, match="no finished run"):
        study_run(tmp_path)
    with pytest.raises(IncognitaError, match="synset map"):
        study_run(run, ["terrra"])
    with pytest.raises(IncognitaError, match="method of this evaluation"):
        study_run(run, ["terra"], method="knn")
