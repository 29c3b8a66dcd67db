"""Every page that users read is run: its Python, commands, options, TOML files and tables."""

import json
import re
import runpy
import shlex
import shutil
import tomllib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from scipy.stats import binomtest
from typer.testing import CliRunner

import incognita
from incognita.benchmarks.class_overlaps import load_class_list
from incognita.benchmarks.definition_files import parse_definition
from incognita.benchmarks.load import load_benchmark
from incognita.benchmarks.splits.build import build_from_annotations
from incognita.benchmarks.splits.facets import load_levels
from incognita.benchmarks.splits.propose import with_limits
from incognita.benchmarks.splits.rules import load_rules, parse_rules
from incognita.benchmarks.splits.superclasses import load_superclass_rules
from incognita.cli.app import app
from incognita.evaluation.certify import certify
from incognita.formats.class_roles import load_class_map
from incognita.methods import METHODS
from incognita.metrics.catalog import METRICS
from incognita.registry import find_plug_ins
from incognita.semantics import map_classes

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
EVERYTHING = "\n".join(PAGES.values())
SHIPPED = Path(str(files("incognita.benchmarks")))
# a table of a page, with the command that prints it in a comment above
EXCERPT = re.compile(r"<!-- excerpt: (.*?) -->\n```text\n(.*?)```", flags=re.DOTALL)
N_IMAGES = 60  # of each set of a benchmark that is made up: enough for the 50 neighbors of kNN


def blocks(language: str, text: str = EVERYTHING) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def toml_with(word: str) -> str:
    """Return the one TOML block of all pages that has this word in it."""
    (block,) = [block for block in blocks("toml") if word in block]
    return block


def test_there_are_pages():
    assert len(PAGES) >= 8
    assert "README.md" in PAGES


# ---------------------------------------------------------------------------------- Python


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder with the street files under the names that the pages use."""
    shutil.copy(SHIPPED / "examples" / "street" / "truth.json", tmp_path / "gt.json")
    shutil.copy(SHIPPED / "examples" / "street" / "detections.json", tmp_path / "dets.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_openood(root: Path) -> None:
    """Write the lists of OpenOOD's CIFAR-10 at full length, and a few random images of each."""
    rng = np.random.default_rng(0)
    content = (SHIPPED / "definitions" / "openood" / "cifar10.toml").read_text()
    for entry in tomllib.loads(content)["set"]:
        is_known = entry["role"] in ("train", "validation", "test")
        listed = root / entry["list"]
        listed.parent.mkdir(parents=True, exist_ok=True)
        labels = (k % 10 if is_known else -1 for k in range(entry["count"]))
        lines = (f"{entry['name']}/{k}.png {label}" for k, label in enumerate(labels))
        listed.write_text("\n".join(lines) + "\n")
        images = root / entry["root"] / entry["name"]
        images.mkdir(parents=True)
        for k in range(N_IMAGES):
            pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(images / f"{k}.png")


def small_classifier() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, 2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 10),
    )


def small_detector() -> torch.nn.Module:
    torch.manual_seed(0)
    return torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=3
    ).eval()


def make_street_benchmark(root: Path, network: torch.nn.Module) -> None:
    """Write `mine.toml` and its files; the truth is what the untrained network finds first."""
    rng = np.random.default_rng(0)
    (root / "mine.toml").write_text(toml_with('mine/street"'))
    categories = [{"id": k, "name": n} for k, n in enumerate(["car", "pedestrian", "horse"])]
    detector = incognita.wrap_detector(network, class_names=["car", "person"])
    for name in ("street", "animals", "crossings"):
        (root / name).mkdir()
        images, annotations = [], []
        for k in range(8):
            pixels = rng.integers(0, 256, (64, 96, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{k}.png")
            images.append({"id": k, "file_name": f"{k}.png", "width": 96, "height": 64})
            found = incognita.detect(detector, pixels)
            for i in range(3):
                x, y, x2, y2 = (float(value) for value in found.xyxy[i])
                is_animal = name == "animals" or (name == "crossings" and i == 0)
                category = 2 if is_animal else int(found.class_ids[i])
                box = [x, y, x2 - x, y2 - y]
                new = {"id": len(annotations) + 1, "image_id": k, "category_id": category}
                annotations.append(new | {"bbox": box, "area": box[2] * box[3], "iscrowd": 0})
        document = {"images": images, "annotations": annotations, "categories": categories}
        (root / f"{name}.json").write_text(json.dumps(document))


def arrays() -> dict[str, object]:
    """Return the arrays that pages take for granted."""
    rng = np.random.default_rng(0)
    is_unknown = rng.random(50) < 0.5
    torch.manual_seed(0)
    features = torch.rand(60, 4)
    head = incognita.Head(torch.rand(3, 4), torch.rand(3))
    return {
        "unknown_score": rng.random(50) + is_unknown,
        "is_unknown": is_unknown,
        "image_ids": tuple(range(60)),
        "features": features,
        "head": head,
        "logits": head(features),
        "labels": torch.arange(60) % 3,
    }


def run_page(name: str, **given: object) -> dict[str, object]:
    """Run the Python blocks of a page one after the other, as a reader would."""
    names = arrays() | given
    for code in blocks("python", PAGES[name]):
        exec(compile(code, name, "exec"), names)
    return names


@pytest.mark.slow
def test_the_python_of_the_readme_runs(folder, monkeypatch, capsys):
    make_openood(folder / "openood")
    monkeypatch.setenv("INCOGNITA_DATA", str(folder / "openood"))
    network = small_detector()
    make_street_benchmark(folder, network)
    names = run_page("README.md", model=small_classifier(), network=network)
    printed = capsys.readouterr().out
    for shown in ("knn", "AUROC", "nOSE", "A-OSE"):
        assert shown in printed
    assert "energy" in names["report"].ranking()
    assert names["certificate"].to_dataframe().height == len(names["certificate"].results)


def test_the_python_of_the_page_on_classifiers_runs(folder):
    names = run_page("docs/classifiers.md")
    assert set(names["report"].ranking()) == {"msp", "energy", "knn", "react+knn"}
    assert names["report"].to_dataframe().height > 4
    assert names["mine"].ranking() == ["energy"]
    assert torch.equal(names["scores"], names["same"])
    assert 0.5 < names["numbers"].auroc <= 1


def test_the_python_of_the_page_on_detectors_runs(folder):
    names = run_page("docs/detectors.md")
    assert set(names["seen"].ranking()) == {"msp", "energy", "mds"}
    assert len(names["found"].classes.names) == 3


def test_the_python_of_the_page_on_certificates_runs(folder):
    names = run_page("docs/certify.md")
    certificate = names["certificate"]
    assert certificate.get("unknown_recall").support["objects"] > 0
    assert json.loads((folder / "certificate.json").read_text()) == certificate.as_json()
    assert names["sure"].get("unknown_recall").value <= certificate.get("unknown_recall").value
    assert names["scored"].meets_criteria


def test_the_python_of_the_page_on_methods_runs(folder):
    names = run_page("docs/methods.md")
    assert names["clipped"].scorer.k == 10
    assert names["own"].get("far-from-mean").get("auroc", "far").value > 0.5


def test_the_python_of_the_page_on_metrics_runs(folder, capsys):
    names = run_page("docs/metrics.md")
    assert 0.5 < names["numbers"].auroc <= 1
    assert "unknown_recall R_U ↑" in capsys.readouterr().out


def test_the_python_of_the_page_on_outputs_runs(folder):
    names = run_page("docs/outputs.md")
    assert set(names["report"].ranking()) == {"msp", "knn", "vim"}


def test_the_python_of_the_page_on_self_aware_detection_runs(folder):
    names = run_page("docs/self-aware.md")
    assert 0 < names["output"].accepted.mean() <= 1
    assert len(names["output"].detections) < len(names["found"])
    answer = names["answer"]
    assert len(answer.accepted) == 1
    assert (len(answer.detections) > 0) == bool(answer.accepted[0])


def test_the_python_of_the_page_on_semantics_runs(folder, capsys):
    names = run_page("docs/semantics.md")
    assert names["nearest"].places.tolist() == [1]
    assert [row.name for row in names["mapped"].ambiguous] == [
        "crane", "church/indoor", "veterinarians_office",
    ]  # fmt: skip
    assert names["prompts"][1] == "a photo of a goldfish"
    assert names["mapped"].summary in capsys.readouterr().out


def test_the_python_of_the_page_on_audits_runs(folder):
    names = run_page("docs/audit.md")
    assert not names["audit"].is_clean
    assert (names["houseplant"].relation, names["houseplant"].known) == ("synonym", "pottedplant")


def test_the_python_of_the_page_on_other_libraries_runs(folder):
    pytest.importorskip("supervision", exc_type=ImportError)
    names = run_page("docs/friends.md")
    assert float(names["ranks"]["auroc"]) == 0.875
    assert float(names["numbers"]["unknown_recall"]) == 1
    assert names["same"].xyxy.tolist() == names["found"].xyxy.tolist()


def test_the_python_of_the_page_on_guards_runs(folder):
    names = run_page("docs/guard.md")
    guard, answer = names["guard"], names["answer"]
    assert guard.expected.coverage.n_counted == answer.accepted.sum() >= 27
    assert set(answer.names) <= {"cat", "dog", "owl"}
    assert names["decision"].accepted.shape == (1,)


def test_every_method_that_the_page_on_guards_exports_is_tested():
    listed = PAGES["docs/guard.md"].split("Tested methods: ")[1].split(". Methods")[0]
    source = (ROOT / "tests" / "decisions" / "test_guard.py").read_text()
    lists = re.findall(r"^ON_\w+ = \((.*?)\)", source, flags=re.DOTALL | re.MULTILINE)
    tested = re.findall(r'"([a-z-]+)"', " ".join(lists))
    assert sorted(re.split(r",\s+", listed)) == sorted(tested)


def test_the_readme_shows_a_report_first():
    picture = re.search(r"!\[.+\]\((docs/pictures/.+)\)", PAGES["README.md"])
    assert picture is not None
    assert picture.start() < PAGES["README.md"].index("## Install")
    assert (ROOT / picture[1]).stat().st_size < 200_000
    with Image.open(ROOT / picture[1]) as image:
        assert image.size == (1664, 900)


def test_the_readme_names_every_command():
    listed = re.search(r"`(demo \|.*?)`", PAGES["README.md"], flags=re.DOTALL)
    assert listed is not None
    names = {command.name for command in app.registered_commands}
    names |= {group.name for group in app.registered_groups}
    assert set(re.split(r"\s*\|\s*", listed[1])) == names


def test_the_changelog_is_built_from_its_fragments():
    built = runpy.run_path(str(ROOT / "docs" / "make_changelog.py"))["changelog"](ROOT / "changes")
    assert built == (ROOT / "CHANGELOG.md").read_text(), "run `make changelog`"
    assert built.count("\n## ") == len(list((ROOT / "changes").glob("*.md")))


def test_no_page_with_python_is_left_out():
    tested = {
        name
        for name in PAGES
        if f'run_page("{name}"' in Path(__file__).read_text() or not blocks("python", PAGES[name])
    }
    assert tested == set(PAGES)


# ---------------------------------------------------------------------------------- commands


def commands() -> list[str]:
    """Return every `incognita` line of the shell blocks, without its comment."""
    joined = [block.replace("\\\n", " ") for block in blocks("bash")]
    lines = [line for block in joined for line in block.splitlines()]
    return [line.split("  #")[0].strip() for line in lines if line.startswith("incognita ")]


def help_of(words: list[str]) -> str:
    """Return the help of the command that a line begins with."""
    n = 2 if words[0] in ("build", "data", "results", "selfaware", "store") else 1
    outcome = CliRunner().invoke(app, [*words[:n], "--help"], env={"COLUMNS": "200"})
    assert outcome.exit_code == 0, words
    return outcome.output


@pytest.mark.parametrize("line", commands(), ids=str)
def test_every_command_exists_with_its_options(line):
    words = shlex.split(line)[1:]
    shown = help_of(words)
    options = [word for word in words if word.startswith("--")]
    assert [option for option in options if option not in shown] == []


def test_every_option_in_the_tables_exists():
    described = set(re.findall(r"`(--[a-z-]+)", EVERYTHING))
    plain = ("certify", "run", "corrupt", "audit", "compare", "leaderboard", "reproduce")
    helps = [help_of([command]) for command in plain]
    helps += [help_of(["selfaware", command]) for command in ("fit", "apply", "evaluate", "study")]
    helps += [help_of(["results", command]) for command in ("ls", "verify", "export")]
    built = ("saod-gen", "facets", "splits", "voc-coco", "image-list", "openimages")
    helps += [help_of(["build", command]) for command in built]
    assert described
    assert {option for option in described if not any(option in text for text in helps)} == set()


def test_every_command_named_in_the_text_exists():
    named = set(re.findall(r"`incognita ([a-z]+)", EVERYTHING))
    assert named >= {"run", "certify", "build", "list"}
    for command in named:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, command


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_the_make_targets_of_the_readme_exist():
    shown = "\n".join(blocks("bash"))
    assert set(re.findall(r"^make ([a-z]+)", shown, flags=re.MULTILINE)) == {"demo", "test"}
    assert {"demo", "test"} <= make_targets()


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("command", "table"),
    [
        pytest.param(*found, marks=[pytest.mark.slow] if "terra/" in found[0] else [], id=found[0])
        for found in EXCERPT.findall(EVERYTHING)
    ],
)
def test_every_printed_table_is_an_excerpt_of_its_command(command, table, folder):
    outcome = CliRunner().invoke(app, shlex.split(command)[1:])
    assert outcome.exit_code == 0, outcome.output
    printed = squeezed(outcome.output)
    for line in squeezed(table):
        assert any(line in row for row in printed), line


def test_no_table_is_printed_without_its_command():
    assert len(EXCERPT.findall(EVERYTHING)) == len(blocks("text")) == 4
    fences = re.findall(r"^```(.*)$", EVERYTHING, flags=re.MULTILINE)
    included = " { .python }"  # a file of examples/, which has tests of its own
    assert set(fences[::2]) == {"bash", "python", "text", "toml", included}
    assert set(fences[1::2]) == {""}


# ---------------------------------------------------------------------------------- TOML


def test_every_toml_block_is_tested_below():
    known = (
        "mine/signs", 'mine/street"', "mine/street-splits", "[superclasses]", "cifar10-c",
        "severity 5", "veterinarians_office", "mine/outliers", "mine/by-meaning", "mine/kitchens",
        "[sun397]", "REQ-7", "incognita.methods",
    )  # fmt: skip
    assert len(blocks("toml")) == len(known)
    for word in known:
        tomllib.loads(toml_with(word))


def test_the_entry_points_of_the_page_are_found(tmp_path, monkeypatch):
    groups = tomllib.loads(toml_with("incognita.methods"))["project"]["entry-points"]
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{name} = {home}" for name, home in entries.items()))
    ]
    info = tmp_path / "acme_ood-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-ood\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert METHODS.plug_ins.found["far-from-mean"].home == "acme_ood.methods:FarFromMean"
    assert find_plug_ins("incognita.benchmarks").found["acme"].home == "acme_ood.definitions"


def test_the_benchmark_of_images_is_valid(tmp_path):
    path = tmp_path / "signs.toml"
    path.write_text(toml_with("mine/signs"))
    plan = CliRunner().invoke(app, ["data", "plan", str(path)])
    assert plan.exit_code == 0
    assert "signs/test" in plan.output


def test_the_overrides_of_the_page_are_valid():
    overrides = tomllib.loads(toml_with("veterinarians_office"))
    mapped = map_classes(list(overrides), overrides=overrides)
    assert mapped.synsets == ["crane.n.05", "church.n.02", "office.n.01"]


def test_levels_of_the_page_are_valid(tmp_path):
    (tmp_path / "levels.toml").write_text(toml_with("[sun397]"))
    assert load_levels(tmp_path / "levels.toml")["sun397"]["abbey"] == 0


def test_corrupted_sets_of_the_pages_are_valid():
    classified, detected = (tomllib.loads(toml_with(w)) for w in ("cifar10-c", "severity 5"))
    signs, street = (tomllib.loads(toml_with(w)) for w in ("mine/signs", 'mine/street"'))
    signs["set"] += classified["set"]
    street["set"] = [s for s in street["set"] if s["role"] != "mixed"] + detected.pop("set")
    parse_definition(signs, source="signs.toml")
    definition = parse_definition(street | detected, source="street.toml")
    assert definition.protocol == "self-aware"
    assert definition.set[-1].rejection == "free"


def test_the_benchmark_of_boxes_loads_its_sets(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(toml_with('mine/street"'))
    names = ["car", "pedestrian", "horse"]
    categories = [{"id": k, "name": name} for k, name in enumerate(names, start=1)]
    for name, category in {"street": 2, "animals": 3, "crossings": 1}.items():
        (tmp_path / name).mkdir()
        images = [{"id": k, "file_name": f"{k}.png"} for k in range(8)]
        boxes = [
            {"id": k + 1, "image_id": k, "category_id": category, "bbox": [1, 1, 5, 5]}
            for k in range(8)
        ]
        for image in images:
            Image.new("RGB", (9, 9)).save(tmp_path / name / image["file_name"])
        document = {"images": images, "annotations": boxes, "categories": categories}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    benchmark = load_benchmark(path, cache_dir=tmp_path)
    assert len(benchmark.validation.image_ids) + len(benchmark.test.image_ids) == 8
    assert (benchmark.test.truth().class_ids == 1).all()  # a pedestrian is a person
    assert set(benchmark.unknown["far"]) == {"animals"}
    assert set(benchmark.mixed) == {"crossings"}


def test_the_rules_of_splits_assign_images(tmp_path):
    path = tmp_path / "my_rules.toml"
    path.write_text(toml_with("mine/street-splits"))
    rules = load_rules(path).rules
    named = [*rules.known, *rules.remove, *rules.near, *rules.far, "kite"]
    document = {
        "images": [{"id": k, "file_name": f"{k}.jpg"} for k in range(len(named))],
        "categories": [{"id": k, "name": name} for k, name in enumerate(named)],
        "annotations": [
            {"id": k + 1, "image_id": k, "category_id": k, "bbox": [1, 1, 5, 5]}
            for k in range(len(named))
        ],
    }
    (tmp_path / "my_annotations.json").write_text(json.dumps(document))
    splits = build_from_annotations(rules, tmp_path / "my_annotations.json").splits
    assert splits.counts == {"near": 2, "far": 2, "farther": 1}
    assert [named[image.image_id] for image in splits.known_images()] == ["car", "person"]


def test_the_class_list_of_the_page_is_valid(tmp_path):
    path = tmp_path / "outliers.toml"
    path.write_text(toml_with("mine/outliers"))
    found = load_class_list(path)
    assert len(found.classes) + len(found.left_out) == 1000
    assert "goldfish" in {pair.unknown for pair in found.left_out}


def test_the_limits_of_the_page_assign_categories():
    content = tomllib.loads(toml_with("mine/by-meaning"))
    rules = with_limits(parse_rules(content, source="page"), ["horse", "zebra", "tree", "pizza"])
    assert (rules.near, rules.far, rules.farther) == (["zebra"], ["tree"], ["pizza"])


def test_the_rules_of_superclasses_are_valid(tmp_path):
    path = tmp_path / "kitchens.toml"
    path.write_text(toml_with("mine/kitchens"))
    rules = load_superclass_rules(path)
    classes = (files("incognita.semantics") / "maps" / "openimages.txt").read_text().splitlines()
    named = [*rules.contains, *rules.excludes, *rules.removed, *rules.superclasses["Lights"]]
    assert {*named} <= {*classes}


def test_the_criteria_of_the_page_are_met_by_the_street(folder):
    (folder / "criteria.toml").write_text(toml_with("REQ-7"))
    known = ["person", "bicycle", "car", "bus", "dog"]
    certificate = certify("gt.json", "dets.json", known=known, criteria="criteria.toml")
    assert [claim.verdict.value for claim in certificate.claims] == ["pass", "pass", "pass"]
    assert certificate.claims[1].result == certificate.get("laece", "saod")


def test_the_bounds_of_the_page_are_those_of_scipy():
    stated = re.findall(r"on (\d+) images[a-z ]* below ([0-9.]+\d)", PAGES["docs/certify.md"])
    assert [int(n) for n, _ in stated] == [20, 200]
    for n, bound in stated:
        exact = binomtest(0, int(n)).proportion_ci(0.95, method="exact").high
        assert exact <= float(bound) <= exact + 1e-3


def test_the_class_map_is_valid(tmp_path):
    path = tmp_path / "map.toml"
    path.write_text(toml_with("[superclasses]"))
    assert load_class_map(path).known == ("car", "bus", "person")


# ---------------------------------------------------------------------------------- names


def test_the_page_on_methods_lists_every_method():
    section = PAGES["docs/methods.md"].split("## Your own method")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, flags=re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(listed) == sorted(incognita.list_methods())


def test_the_page_on_benchmarks_lists_every_benchmark():
    section = PAGES["docs/benchmarks.md"].split("## Your own images")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, flags=re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(listed) == sorted(incognita.list_benchmarks())


def test_every_module_of_the_page_on_metrics_exists():
    modules = re.findall(r"`metrics\.([a-z_]+)`", PAGES["docs/metrics.md"])
    assert modules
    for module in modules:
        assert (Path(incognita.__file__).parent / "metrics" / f"{module}.py").is_file(), module


def test_every_metric_of_the_conventions_page_is_in_the_catalog():
    page = (ROOT / "CONVENTIONS.md").read_text()
    section = page.split("## Open-set metrics")[1].split("## Boxes of")[0]
    named = set(re.findall(r"^\| `([a-z_]+)`", section, flags=re.MULTILINE))
    assert named
    assert named <= set(METRICS)


def test_the_public_names_are_those_the_pages_use():
    used = set(re.findall(r"incognita\.([A-Za-z_]+)\(", EVERYTHING))
    assert used
    assert used <= set(incognita.__all__)
    assert incognita.certify is certify


def test_every_link_between_pages_leads_somewhere():
    pages = {**PAGES, **{path.name: path.read_text() for path in ROOT.glob("*.md")}}
    for name, text in pages.items():
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / name).parent.joinpath(target).exists(), f"{name}: {target}"


def test_the_diagrams_of_the_architecture_name_what_exists():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    steps = re.findall(r"^([a-z_]+/[a-z_/]+\.py) +([A-Za-z0-9_]+)", page, flags=re.MULTILINE)
    assert len(steps) > 15
    for module, name in steps:
        code = (Path(incognita.__file__).parent / module).read_text()
        assert re.search(rf"^(class|def) {name}\b", code, flags=re.MULTILINE), f"{module}: {name}"


def test_the_table_of_additions_names_files_that_exist():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = page.split("## To add X, edit Y")[1].split("## Code")[0]
    rows = "\n".join(line for line in table.splitlines() if line.startswith("|"))
    paths = set(re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", rows))
    assert len(paths) > 10
    assert {
        path for path in paths if not (Path(incognita.__file__).parent / path).exists()
    } == set()
    assert set(re.findall(r"^make ([a-z]+)", page, flags=re.MULTILINE)) <= make_targets()


def test_no_line_of_a_page_is_too_long_to_read():
    pages = {path.name: path.read_text() for path in ROOT.glob("*.md")} | PAGES
    long = {name: max(map(len, text.splitlines())) for name, text in pages.items()}
    assert {name: length for name, length in long.items() if length > 140} == {}


def test_the_readme_is_a_front_door():
    lines = PAGES["README.md"].splitlines()
    assert len(lines) <= 110
    assert max(map(len, lines)) <= 120
    first = PAGES["README.md"].split("## Install")[0]
    assert "out-of-distribution (OOD)" in first
    assert "open-set" in first
