"""`incognita leaderboard` builds a static site of results; `incognita serve` shows a folder."""

import sys
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from incognita.cli._terminal import CRITERION_FAILED, IN_PART, interrupts, progress_on_stderr

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

    from incognita.report.leaderboard import Submissions

ADDRESS = "127.0.0.1"  # nothing outside this machine can connect
Runs = Annotated[list[Path], typer.Argument(help="Submissions: --out folders of runs.")]
Out = Annotated[Path, typer.Option(help="Folder for the site; replaced if it is a leaderboard.")]
Store = Annotated[
    Path | None, typer.Option(help="Folder with outputs of detectors; by default OUT/outputs.")
]
Verify = Annotated[bool, typer.Option(help="Compute every number again from the stored scores.")]
Reports = Annotated[bool, typer.Option(help="Add the report of every run.")]
Strict = Annotated[bool, typer.Option(help="Write nothing if a run is refused.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")]
Folder = Annotated[Path, typer.Argument(help="Folder to show, such as a leaderboard.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")]


def leaderboard_command(
    runs: Runs,
    out: Out = Path("site"),
    store: Store = None,
    verify: Verify = True,
    reports: Reports = True,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Build a leaderboard of any number of runs as a static site.

    Every run is checked first. One with a missing file, a changed number or another definition of
    its benchmark is refused with its reasons, and the others are shown. Exit code 0: all runs are
    shown; 4: some were refused; with --strict 1, and nothing is written.

    Example: incognita leaderboard runs --out site
    """
    from incognita.errors import MissingDataError
    from incognita.report.leaderboard import collect
    from incognita.report.leaderboard_site import Site, refuse_files_of_others, save_site

    refuse_files_of_others(out)  # before the long work
    with progress_on_stderr(first="checking") as (on_step, _):
        found = collect(runs, recomputes=verify, store=store, on_step=on_step)
        is_written = bool(found.entries) and not (strict and found.refused)
        site = Site(found, has_reports=reports, on_step=on_step)
        if is_written:
            save_site(out, site.files())
    _print(found, [*found.notes, *site.notes], out if is_written else None, as_json=as_json)
    if strict and found.refused:
        raise typer.Exit(CRITERION_FAILED)
    if not found.entries:
        raise MissingDataError("No run was accepted, so there is nothing to show.")
    if found.refused:
        raise typer.Exit(IN_PART)


def _print(found: "Submissions", notes: list[str], out: Path | None, *, as_json: bool) -> None:
    import json

    from incognita.errors import count, printable

    index = None if out is None else str(out / "index.html")
    n_verified = sum(entry.is_verified for entry in found.entries)
    if as_json:
        record = {
            "index": index,
            "results": len(found.entries),
            "verified": n_verified,
            "refused": [{"run": path, "reasons": list(why)} for path, why in found.refused],
            "notes": notes,
        }
        sys.stdout.write(json.dumps(record, indent=1) + "\n")
        return
    lines = [f"refused: {path}: {reason}" for path, why in found.refused for reason in why]
    lines += [f"note: {note}" for note in notes]
    shown = f"{count(len(found.entries), 'result')}, {n_verified:,} verified"
    lines.append(f"{shown}: {index}" if index else f"{shown}; nothing was written")
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))


def serve_command(folder: Folder = Path("site"), port: Port = 8000) -> None:
    """Show a folder of pages in the browser, on this machine only.

    Ctrl-C ends it.

    Example: incognita serve site --port 8000
    """
    server = make_server(folder, port)
    sys.stdout.write(f"http://{ADDRESS}:{server.server_address[1]}/ shows {folder}; Ctrl-C ends\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        interrupts.clear()  # the usual way to end it
    finally:
        server.server_close()


def make_server(folder: Path, port: int) -> "ThreadingHTTPServer":
    """Return a server of the files below a folder, on the loopback interface."""
    from http.server import ThreadingHTTPServer

    from incognita.errors import InvalidDataError, MissingDataError

    if not folder.is_dir():
        raise MissingDataError(
            f"There is no folder {folder}. Build one: incognita leaderboard RUNS --out {folder}"
        )
    try:
        return ThreadingHTTPServer((ADDRESS, port), partial(_handler(), directory=str(folder)))
    except OSError as error:
        raise InvalidDataError(
            f"Port {port} cannot be used: {error.strerror}. Choose another one, or 0 for any."
        ) from error


_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": _POLICY,  # pages of a leaderboard narrow it to their own script
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _handler() -> Any:
    """Return the class that answers requests; its base is not needed by other commands."""
    from http.server import SimpleHTTPRequestHandler
    from os.path import realpath

    class Handler(SimpleHTTPRequestHandler):
        """Answers with files below a folder; links must not lead out of it."""

        extensions_map = SimpleHTTPRequestHandler.extensions_map | {
            ".html": "text/html; charset=utf-8",
            ".csv": "text/csv; charset=utf-8",
            ".json": "application/json",
        }

        def send_head(self) -> Any:
            if not self._is_local():
                self.send_error(HTTPStatus.FORBIDDEN, "Expected a local address")
                return None
            if not self._is_inside():
                self.send_error(HTTPStatus.NOT_FOUND, "File not found")
                return None
            return super().send_head()

        def _is_local(self) -> bool:
            """Refuse names that a web page of others may have bound to this address."""
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
            return host in (ADDRESS, "localhost")

        def _is_inside(self) -> bool:
            root = Path(realpath(self.directory))
            try:
                path = Path(realpath(self.translate_path(self.path)))
            except ValueError:  # a null byte
                return False
            is_below = path == root or root in path.parents
            return is_below and not any(p.startswith(".") for p in path.relative_to(root).parts)

        def list_directory(self, path: Any) -> IO[bytes] | None:  # type: ignore[override]
            self.send_error(HTTPStatus.NOT_FOUND, "File not found")
            return None

        def end_headers(self) -> None:
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            super().end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            """Stay silent: the address is all a reader needs."""

    return Handler
