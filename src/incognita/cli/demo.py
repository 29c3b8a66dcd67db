"""`incognita demo`: certify a detector, rank methods on models, make a detector self-aware.

It ends with a report of each of them and a leaderboard of the methods.
"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from incognita.report.page import Page

# some of each family; `--methods all` runs them all
BOX_METHODS = (
    "msp, energy, gen, max-logit, mds, knn, ddu, vim, react, dice, dice+react, ash-s, lard"
)


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the results of the demo.")] = Path("demo"),
    limit: Annotated[
        int | None,
        typer.Option(min=100, help="Maximum images per set of Terra; ten times for training."),
    ] = None,
) -> None:
    """Certify a simulated street detector, then rank methods on the embedded world Terra.

    First on a classifier of images, then on a detector of objects in scenes, which is made
    self-aware. At the end everything is shown as pages for a browser.

    Example: incognita demo --out demo --limit 200
    """
    certify_street(out / "certificate.json")
    rank_on_terra(out, limit)
    find_on_terra(out, limit)
    stay_silent_on_terra(out, limit)
    show_in_a_browser(out)


def certify_street(certificate: Path) -> None:
    """Certify a detector that meets animals and scooters it was not trained on."""
    from importlib.resources import as_file, files

    from incognita.cli.certify import certify_command

    typer.echo("1. A street detector meets objects it was not trained on: incognita certify")
    with as_file(files("incognita.benchmarks").joinpath("examples", "street")) as street:
        certify_command(
            truth=street / "truth.json",
            detections=street / "detections.json",
            classes=street / "classes.toml",
            out=certificate,
        )
    typer.echo(f"\nThe certificate is in {certificate.resolve()}\n")


def rank_on_terra(out: Path, limit: int | None) -> None:
    """Rank methods on a classifier that meets shapes and images it was not trained on."""
    from incognita.cli.run import run_command

    typer.echo("2. A classifier meets images of unknown classes: incognita run terra/standard")
    run_command("terra/standard", methods="all", limit=limit, out=out)


def find_on_terra(out: Path, limit: int | None) -> None:
    """Rank methods on a detector that meets objects it was not trained on."""
    import torch

    from incognita.cli.run import run_command

    # scenes are small: sharing a layer among threads costs more than it saves
    torch.set_num_threads(1)
    typer.echo("\n3. A detector meets objects of unknown classes: incognita run terra/detection")
    run_command("terra/detection", methods=BOX_METHODS, limit=limit, out=out)


def stay_silent_on_terra(out: Path, limit: int | None) -> None:
    """Make the detector self-aware: it rejects scenes that it does not understand."""
    from incognita.cli.run import run_command

    typer.echo("\n4. The detector learns to stay silent: incognita run terra/self-aware")
    run_command("terra/self-aware", limit=limit, out=out)


def show_in_a_browser(out: Path) -> None:
    """Write a report of each part of the demo, a page that leads to them, and a leaderboard."""
    from incognita.report.page import render
    from incognita.results.export import save_text

    typer.echo("\n5. Everything in a browser: incognita report, incognita leaderboard")
    self_aware = max((out / "self-aware").glob("*/report.json"), key=lambda p: p.stat().st_mtime)
    sources = {
        "certificate": out / "certificate.json",
        "classifier": out / "results" / "terra-standard",
        "detector": out / "results" / "terra-detection",
        "self-aware": self_aware,
    }
    answers = {name: _save_report(out, name, source) for name, source in sources.items()}
    save_text(out / "report.html", render(index_page(answers)))
    build_leaderboard(out)  # last: where an older run is refused, the reports are there
    typer.echo(f"\nReports: {(out / 'report.html').resolve()}")
    typer.echo(f"Leaderboard: {(out / 'leaderboard' / 'index.html').resolve()}")
    served = f"incognita serve {shlex.quote(str(out))}"
    typer.echo(f"Open these files in a browser, or: {served}, http://127.0.0.1:8000/report.html")


def build_leaderboard(out: Path) -> None:
    """Build the leaderboard of the methods of the demo."""
    from incognita.cli.leaderboard import leaderboard_command

    leaderboard_command([out / "results"], out=out / "leaderboard", store=out / "outputs")


def _save_report(out: Path, name: str, source: Path) -> str:
    """Save the newest report of a source; return its answer."""
    from incognita.report import load_reports, page_of
    from incognita.report.page import render
    from incognita.results.export import save_text

    page = page_of(load_reports(source)[0])
    save_text(out / "reports" / f"{name}.html", render(page))
    return page.answer


# what each report is about
QUESTIONS = {
    "certificate": "A street detector meets objects it was not trained on",
    "classifier": "A classifier of drawn shapes meets images of unknown classes",
    "detector": "A detector of drawn shapes meets objects of unknown classes",
    "self-aware": "The same detector rejects scenes that it does not understand",
}


def index_page(answers: dict[str, str]) -> "Page":
    """Return the page that leads to the reports of the demo and to its leaderboard."""
    from incognita._version import __version__
    from incognita.report.page import Cell, Page, PageColumn, PageTable

    columns = ("question", "report"), ("answer", "answer")
    rows = [
        {"question": Cell(QUESTIONS[name], href=f"reports/{name}.html"), "answer": Cell(answer)}
        for name, answer in answers.items()
    ]
    ranked = "All methods of the classifier and of the detector, ranked and computed again"
    rows.append(
        {"question": Cell("Leaderboard", href="leaderboard/index.html"), "answer": Cell(ranked)}
    )
    return Page(
        title="incognita demo",
        answer="What do models do when they meet something they were never trained on?",
        table=PageTable(
            columns=tuple(PageColumn(key=k, label=label, is_number=False) for k, label in columns),
            rows=tuple(rows),
            name="reports",
        ),
        footer=(("incognita", __version__),),
    )
