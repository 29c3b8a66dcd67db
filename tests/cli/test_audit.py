"""`incognita audit`: tables, JSON, exit codes, proposals and bad usage."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from incognita.benchmarks.splits.rules import load_rules
from incognita.cli.app import app
from incognita.semantics import load_synset_map


def run(*words):
    return CliRunner().invoke(app, ["audit", *map(str, words)])


@pytest.fixture
def lists(tmp_path):
    (tmp_path / "known.txt").write_text("person\nsofa\n")
    (tmp_path / "unknown.txt").write_text("woman\ncouch\nwolf\ngnarfle\n")
    (tmp_path / "clean.txt").write_text("wolf\npizza\n")
    return tmp_path


def test_overlaps_are_shown_and_give_exit_code_1(lists):
    outcome = run(lists / "known.txt", lists / "unknown.txt")
    assert outcome.exit_code == 1
    for text in ("woman", "hyponym", "woman.n.01 is a kind of person.n.01", "both are sofa.n.01"):
        assert text in outcome.output
    assert "overlap: 2 overlapping classes" in outcome.output
    assert "1 class is no noun of WordNet" in outcome.output


def test_a_clean_pair_gives_exit_code_0(lists):
    outcome = run(lists / "known.txt", lists / "clean.txt")
    assert outcome.exit_code == 0
    assert "clean: no overlap was found" in outcome.output


def test_chosen_relations_decide(lists):
    assert run(lists / "known.txt", lists / "unknown.txt", "--relations", "exact").exit_code == 0
    found = run(lists / "known.txt", lists / "unknown.txt", "--relations", "synonym, exact")
    assert found.exit_code == 1
    assert "both are sofa.n.01" in found.output
    assert "woman.n.01 is a kind" not in found.output


def test_json_holds_everything(lists):
    outcome = run(lists / "known.txt", lists / "unknown.txt", "--json")
    document = json.loads(outcome.stdout)
    assert outcome.exit_code == 1
    assert document["sets"][0]["unmapped"] == ["gnarfle"]
    assert [row["relation"] for row in document["sets"][0]["overlaps"]] == ["hyponym", "synonym"]


def test_overrides_choose_the_sense(lists):
    (lists / "senses.toml").write_text('couch = "couch.n.03"\n')
    found = run(
        lists / "known.txt", lists / "unknown.txt", "--overrides", lists / "senses.toml", "--json"
    )
    assert json.loads(found.stdout)["sets"][0]["synsets"]["couch"] == "couch.n.03"


def test_proposed_rules_are_written(lists):
    out = lists / "rules.toml"
    outcome = run(lists / "known.txt", lists / "unknown.txt", "--propose", out, "--near", "0.5")
    assert "far is 0.6, but must be below near, 0.5" in str(outcome.exception)
    words = ("--propose", out, "--near", "0.4", "--far", "0.2")
    outcome = run(lists / "known.txt", lists / "unknown.txt", *words)
    assert outcome.exit_code == 1
    rules = load_rules(out).rules
    assert (rules.known, rules.remove, rules.near) == (["couch", "person"], ["woman"], ["wolf"])
    assert rules.absent == ["person"]
    assert f"Proposed rules: {out}" in outcome.output.replace("\n", "")


def test_a_proposal_replaces_no_file_unasked(lists):
    inputs = (lists / "known.txt", lists / "unknown.txt")
    out = lists / "rules.toml"
    out.write_text("edited")
    refused = run(*inputs, "--propose", out)
    assert "which is there and may be edited" in str(refused.exception)
    assert out.read_text() == "edited"
    assert run(*inputs, "--propose", out, "--force").exit_code == 1
    assert load_rules(out).rules.remove == ["woman"]
    own = run(out, *inputs[1:], "--propose", out, "--force")
    assert "is one of the inputs" in str(own.exception)
    folder = run(*inputs, "--propose", ".")
    assert "Expected a .toml file for --propose" in str(folder.exception)


def test_nothing_compared_gives_exit_code_4(lists):
    empty = lists / "empty.toml"
    empty.write_text('name = "empty"\nclasses = ["wolf"]\nwithout = ["clean.txt"]\n')
    outcome = run(lists / "known.txt", empty)
    assert outcome.exit_code == 4
    assert "nothing was compared" in outcome.output
    assert "clean" not in outcome.output


def test_the_strongest_overlaps_are_shown_of_many(tmp_path):
    wnids = [
        row.wnid for row in load_synset_map("imagenet1k").classes[:40]
    ]  # fish, birds and so on
    (tmp_path / "known.txt").write_text("animal\ncup\n")
    (tmp_path / "unknown.txt").write_text("\n".join([*wnids, "cup"]))
    shown = run(tmp_path / "known.txt", tmp_path / "unknown.txt").output
    relations = [line.split()[1] for line in shown.splitlines() if line.split()[:1] == ["cup"]]
    assert relations == ["exact"]  # the last of the list, but not among those left out
    assert "… 11 more: --json" in shown


def test_what_is_said_of_head_nouns_and_distant_parts(tmp_path):
    (tmp_path / "known.txt").write_text("car\n")
    (tmp_path / "unknown.txt").write_text("toy car\nwheel\n")
    outcome = run(tmp_path / "known.txt", tmp_path / "unknown.txt", "--json")
    (found,) = json.loads(outcome.stdout)["sets"]
    (pair,) = found["overlaps"]
    assert pair["rule"] == "both are car.n.01 (of toy car only the head noun)"
    (part,) = found["distant_parts"]
    assert (part["unknown"], part["known"], part["relation"]) == ("wheel", "car", "part")
    shown = run(tmp_path / "known.txt", tmp_path / "unknown.txt").output.replace("\n", " ")
    assert "1 pair may be part and whole and do not count: wheel and car" in shown


def write_images(folder, seeds):
    folder.mkdir(parents=True)
    for seed in seeds:
        pixels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        image = Image.fromarray(pixels).resize((64, 48), Image.Resampling.BICUBIC)
        image.save(folder / f"{seed}.png")


def test_images_in_two_folders_are_shown(tmp_path):
    write_images(tmp_path / "known" / "dog", [1, 2])
    write_images(tmp_path / "unknown" / "cup", [2, 3])
    outcome = run(tmp_path / "known", tmp_path / "unknown")
    assert outcome.exit_code == 1
    assert "dog/2.png = cup/2.png" in outcome.output
    assert "overlap: 1 repeated image" in outcome.output
    assert run(tmp_path / "known", tmp_path / "unknown", "--no-images").exit_code == 0


def test_a_model_says_how_alike_images_look(tmp_path):
    write_images(tmp_path / "known" / "dog", [1, 2])
    write_images(tmp_path / "unknown" / "cup", [3])
    write_images(tmp_path / "same" / "cup", [1])
    for folder, is_same in (("unknown", False), ("same", True)):
        found = run(tmp_path / "known", tmp_path / folder, "--model", "terra:classifier", "--json")
        (row,) = json.loads(found.stdout)["likenesses"]
        assert (row["nearest"] > 0.9999) == is_same
    shown = run(tmp_path / "known", tmp_path / "unknown", "--model", "terra:classifier")
    assert "How alike the images look" in shown.output
    detector = run(tmp_path / "known", tmp_path / "unknown", "--model", "terra:detector")
    assert "Expected a classifier for --model" in str(detector.exception)


def test_markup_in_names_is_shown_as_it_is(tmp_path):
    (tmp_path / "known.txt").write_text("[red]dog[/red]\n")
    (tmp_path / "unknown.txt").write_text("[red]dog[/red]\n")
    assert "[red]dog[/red]" in run(tmp_path / "known.txt", tmp_path / "unknown.txt").output


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("voc",), 2, "voc has known classes only"),
        (("voc", "cocoo"), 2, "Did you mean coco?"),
        (("voc", "none.txt"), 3, "There is no class list at none.txt"),
        (("voc", "coco", "--relations", "friend"), 2, "No relation is called 'friend'"),
        (("voc", "coco", "--classes", "x=voc"), 2, "No set without class names is called 'x'"),
        (("voc", "coco", "--relations", ""), 2, "No relation is called ''"),
        (("voc", "coco", "--classes", "x"), 2, "Expected --classes SET=LIST, got 'x'"),
        (("voc", "coco", "--model", "terra:classifier"), 2, "known and unknown images for --model"),
        (("openood/cifar10",), 3, "name their folder with --data"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_usage_gets_one_sentence(words, code, sentence, tmp_path, monkeypatch):
    monkeypatch.delenv("INCOGNITA_DATA", raising=False)
    command = [sys.executable, "-m", "incognita", "audit", *words]
    outcome = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert outcome.returncode == code
    assert sentence in outcome.stderr
    assert "Traceback" not in outcome.stderr
