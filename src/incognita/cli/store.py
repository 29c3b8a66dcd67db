"""`incognita store`: what recorded outputs take on disk, and how to make room."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from incognita.extraction.stored_outputs import StoredOutputs

store_app = typer.Typer(no_args_is_help=True, help="List or delete recorded outputs.")
Folder = Annotated[
    Path, typer.Argument(help="Folder of outputs: OUT/outputs of a run, or its --store.")
]
OlderThan = Annotated[
    float | None, typer.Option(min=0, help="Delete outputs that were not used for so many days.")
]
Keep = Annotated[
    int | None, typer.Option(min=0, help="Keep so many of those used last, delete the others.")
]
Everything = Annotated[bool, typer.Option("--all", help="Delete all recorded outputs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be deleted.")]


@store_app.command("ls")
def list_outputs(folder: Folder = Path("runs/outputs"), as_json: AsJson = False) -> None:
    """List models and data sets with size and last use, newest first.

    Example: incognita store ls runs/outputs
    """
    from incognita.extraction.stored_outputs import stored_outputs

    _print(stored_outputs(folder), "in all", as_json=as_json)


@store_app.command("prune")
def prune_outputs(
    folder: Folder = Path("runs/outputs"),
    older_than: OlderThan = None,
    keep: Keep = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete recorded outputs; results stay, and files that are not ours are left alone.

    Example: incognita store prune --older-than 30 --dry-run
    """
    from incognita.errors import InvalidDataError
    from incognita.extraction.stored_outputs import stored_outputs

    if [older_than is not None, keep is not None, everything].count(True) != 1:
        raise InvalidDataError(
            "Expected one of --older-than, --keep and --all. Choose what to delete."
        )
    found = stored_outputs(folder)
    if older_than is not None:
        found = [entry for entry in found if entry.last_use < time.time() - 86400 * older_than]
    found = found[keep:] if keep is not None else found
    for entry in found if not dry_run else []:
        entry.delete()
    _print(found, "would be deleted" if dry_run else "deleted", as_json=as_json)


def _print(found: "list[StoredOutputs]", verb: str, *, as_json: bool) -> None:
    from incognita.extraction.stored_outputs import size_in_words

    if as_json:
        rows = [asdict(entry) | {"folder": str(entry.folder)} for entry in found]
        sys.stdout.write(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        return
    for entry in found:
        sys.stdout.write(f"{entry}\n")
    total = size_in_words(sum(entry.n_bytes for entry in found))
    sys.stdout.write(f"{len(found)} {verb}, {total}\n")
