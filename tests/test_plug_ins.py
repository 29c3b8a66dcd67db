"""Plug-ins: methods and benchmarks of a distribution that is installed beside the package."""

import json
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner

import incognita
from incognita.benchmarks.definition_files import find_definition, installed_benchmarks
from incognita.cli.app import app
from incognita.errors import InvalidDataError
from incognita.evaluation.evaluator import code_version
from incognita.evaluation.select_methods import Capabilities, select_methods
from incognita.methods import METHODS, load_method
from incognita.methods.contract import Toy
from incognita.methods.parse import parse_method

METHOD = """
    from dataclasses import dataclass
    from incognita.methods import Method, Needs

    @dataclass(eq=False)
    class FarFromMean(Method):
        \"\"\"Far from the mean: distance to the mean of known features.\"\"\"

        power: float = 1.0
        needs = Needs.FEATURES | Needs.KNOWN

        def fit_statistics(self, known, validation):
            self.mean_ = known.features.double().mean(dim=0)

        def score_rows(self, rows):
            return (rows.features.double() - self.mean_).norm(dim=1) ** self.power

    def not_a_method():
        return 3
"""
BENCHMARK = """
    extends = "digits/standard"
    name = "acme/digits"
    version = 1
    title = "Digits of Acme"
"""


def install(folder: Path, entry_points: str, *, name="acme-ood", version="1.2", **files: str):
    """Write what an installer would: files of a package, and its metadata."""
    for path, content in files.items():
        target = folder / path.replace("__SLASH__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(dedent(content))
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(dedent(entry_points))
    return info


def write(folder: Path, **files: str) -> None:
    for path, content in files.items():
        (folder / path).write_text(dedent(content))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the search path, and a fresh start of the packages that tests put there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for module in [m for m in sys.modules if m.partition(".")[0] in ("acme", "other")]:
        del sys.modules[module]


@pytest.fixture
def acme(site):
    (site / "acme" / "definitions").mkdir(parents=True)
    write(site / "acme", **{"__init__.py": "", "methods.py": METHOD})
    write(site / "acme" / "definitions", **{"digits.toml": BENCHMARK})
    info = install(
        site,
        """
        [incognita.methods]
        far-from-mean = acme.methods:FarFromMean
        [incognita.benchmarks]
        acme = acme.definitions
        """,
    )
    return site, info


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_a_method_is_found_by_its_name(acme):
    assert "far-from-mean" in incognita.list_methods()
    assert load_method("far-from-mean", power=2.0).power == 2.0
    assert parse_method("react+far-from-mean(power=3.0)").scorer.power == 3.0
    assert not hasattr(incognita.methods, "FarFromMean")


def test_methods_are_listed_with_their_origin(acme):
    done = run("list", "methods", "far*")
    about = "Far from the mean: distance to the mean of known features. [acme-ood 1.2]"
    assert done.stdout == f"far-from-mean  {about}\n"
    rows = json.loads(run("list", "methods", "--json").stdout)
    assert rows[-1]["origin"] == "acme-ood 1.2"
    assert rows[0]["origin"] == f"incognita {incognita.__version__}"


def test_benchmarks_are_listed_and_found(acme):
    assert incognita.list_benchmarks()[-1] == "acme/digits"
    found = find_definition("acme/digits")
    assert found.definition.title == "Digits of Acme"
    assert (found.is_shipped, found.typed) == (False, "acme/digits")
    done = run("list", "benchmarks", "acme/*")
    assert done.stdout == "acme/digits  classification  Digits of Acme [acme-ood 1.2]\n"


def test_a_run_uses_both(acme, tmp_path):
    done = run(
        "run", "acme/digits", "--methods", "far-from-mean", "--limit", 40, "--resamples", 0,
        "--out", tmp_path / "runs", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "acme/digits" in done.stdout
    records = [json.loads(p.read_text()) for p in (tmp_path / "runs").rglob("results/**/*.json")]
    codes = {record["identity"]["code"] for record in records if "identity" in record}
    assert any(code.startswith("acme-ood 1.2, FarFromMean#") for code in codes)


def test_the_identity_changes_with_the_version_and_with_the_file(acme):
    site, info = acme
    first = code_version(load_method("far-from-mean"))
    assert first.startswith("acme-ood 1.2, FarFromMean#")
    info.rename(site / "acme_ood-1.3.dist-info")
    metadata = site / "acme_ood-1.3.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.2", "1.3"))
    sys.path.append("")  # the metadata are read once for each search path
    try:
        assert code_version(load_method("far-from-mean")) == first.replace("1.2", "1.3")
        source = site / "acme" / "methods.py"
        source.write_text(source.read_text() + "\n# edited\n")
        edited = code_version(load_method("far-from-mean"))
    finally:
        sys.path.pop()
    assert edited.partition(", file ")[0] == first.replace("1.2", "1.3").partition(", file ")[0]
    assert edited != first.replace("1.2", "1.3")


def test_a_saved_plug_in_is_loaded_by_name(acme, tmp_path):
    toy = Toy()
    method = load_method("far-from-mean").fit(toy.outputs(50))
    incognita.save_method(method, tmp_path / "m.safetensors")
    loaded = incognita.load_saved_method(tmp_path / "m.safetensors")
    assert loaded.score(toy.outputs(9)).tolist() == method.score(toy.outputs(9)).tolist()


def test_a_plug_in_does_not_take_a_name_of_ours(site):
    write_package(site, "other", METHOD)
    install(
        site,
        """
        [incognita.methods]
        knn = other:FarFromMean
        far+away = other:FarFromMean
        [incognita.benchmarks]
        openood = other
        """,
        name="other",
    )
    assert load_method("knn").title == "KNN"
    assert incognita.list_methods("knn") == ["knn"]
    done = run("list", "methods")
    assert done.exit_code == 0
    assert (
        "note: The plug-in knn of other 1.2 is left out: it has the name of a part" in done.stderr
    )
    assert "note: The plug-in far+away of other 1.2 is left out: expected a name of" in done.stderr
    assert run("list", "methods", "--quiet").stderr == ""
    assert "openood of other 1.2 is left out" in run("list", "benchmarks").stderr


def write_package(site, name, content):
    (site / name).mkdir()
    write(site / name, **{"__init__.py": content})


def test_two_plug_ins_of_one_name_are_one_and_a_note(acme):
    site, _ = acme
    install(site, "[incognita.methods]\nfar-from-mean = other:X\n", name="zebra")
    assert METHODS.plug_ins.found["far-from-mean"].distribution == "acme-ood 1.2"
    assert "acme-ood 1.2 has one of this name" in METHODS.plug_ins.notes[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this"),
        ("def broken(:", "SyntaxError"),
        ("x = 1", "AttributeError"),
    ],
)
def test_a_broken_plug_in_is_a_note(site, content, words):
    write_package(site, "other", content)
    install(site, "[incognita.methods]\nmine = other:Mine\n", name="other")
    done = run("list", "methods")
    assert done.exit_code == 0
    with pytest.raises(InvalidDataError, match="The plug-in mine of other") as e:
        load_method("mine")
    assert words in str(e.value)
    selected = select_methods("all", Capabilities())
    assert "mine" not in selected.methods
    assert words in selected.skipped["mine"]
    assert {"msp", "knn"} <= set(selected.methods)


def test_metadata_that_cannot_be_read_are_notes(acme):
    site, _ = acme
    install(site, "[incognita.methods]\nno equals sign\n", name="first")
    info = install(site, "[incognita.methods]\nlost = other:X\n", name="second")
    (info / "METADATA").unlink()
    done = run("list", "methods", "far*")
    assert done.exit_code == 0
    assert done.stdout.startswith("far-from-mean ")
    assert done.stderr.count("cannot be read") == 2
    assert "first-1.2.dist-info" in done.stderr
    assert "second-1.2.dist-info" in done.stderr


def test_a_plug_in_that_is_no_method_is_refused(acme):
    _, info = acme
    (info / "entry_points.txt").write_text(
        "[incognita.methods]\nodd = acme.methods:not_a_method\nlist = acme.methods:Needs\n"
    )
    with pytest.raises(InvalidDataError, match="Expected odd to be a subclass of"):
        load_method("odd")


def test_broken_benchmarks_are_notes(acme):
    site, info = acme
    folder = site / "acme" / "definitions"
    write(folder, **{"wrong.toml": BENCHMARK, "bad.toml": "name = ["})
    (info / "entry_points.txt").write_text(
        "[incognita.benchmarks]\nacme = acme.definitions\ngone = acme.nothing\nlost = nothing.x\n"
    )
    done = run("list", "benchmarks", "[at]*")
    assert done.exit_code == 0
    assert "acme/digits" in done.stdout
    assert "Expected the name 'acme/wrong' in" in done.stderr
    assert "The plug-in acme/bad of acme-ood 1.2 fails" in done.stderr
    assert len(installed_benchmarks().notes) == 2
