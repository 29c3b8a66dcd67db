"""FACETS the other way round, on real images of ImageNet and MiniPlaces; no network is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from incognita.benchmarks import load_benchmark
from incognita.semantics import load_synset_map

STUDY = Path(__file__).parents[1] / "studies" / "facets_reversed"


@pytest.mark.parametrize(("distance", "n_accepted"), [("0.40", 580), ("0.50", 1180)])
def test_real_scenes_are_accepted_or_unknown_by_distance(data_dir, tmp_path, distance, n_accepted):
    command = [sys.executable, STUDY / "prepare.py", data_dir, tmp_path, "--distance", distance]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "bookshop" in done.stdout
    benchmark = load_benchmark(tmp_path / "benchmark.toml")
    accepted, unknown = benchmark.accepted["accepted"], benchmark.unknown["unknown"]["unknown"]
    assert (len(benchmark.test), len(accepted), len(unknown)) == (
        250,
        n_accepted,
        2000 - n_accepted,
    )
    assert not benchmark.is_partial
    names = load_synset_map("imagenet1k").names
    for label, image_id in zip(benchmark.test.labels[:20], benchmark.test.image_ids, strict=False):
        wnid = load_synset_map("imagenet1k")[names[label]].wnid
        assert wnid in image_id
    assert accepted.load(0).shape == (128, 128, 3)
    assert {"bookstore", "volcano", "mountain"} <= set(accepted.source_classes)
    assert not set(accepted.source_classes) & set(unknown.source_classes)
