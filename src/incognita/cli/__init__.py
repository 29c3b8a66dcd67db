"""The command line: one file per command, nothing heavy imported before a command runs."""

import sys

from incognita.errors import IncognitaError, MissingDataError

WRONG_USAGE, DATA_MISSING, INTERRUPTED = 2, 3, 130


def main() -> None:
    """Run a command; an error on purpose is one sentence and an exit code, never a traceback."""
    from incognita.cli.app import app

    _spare_scipy()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except IncognitaError as error:
        sys.stderr.write(f"incognita: {error}\n")
        sys.exit(DATA_MISSING if isinstance(error, MissingDataError) else WRONG_USAGE)


def _spare_scipy() -> None:
    """Keep numba from importing scipy.linalg, an eighth of a second, which no kernel of ours uses.

    Only the command line does this: a process of somebody else's may want numba with BLAS.
    """
    spared = sys.modules.get("scipy.linalg")
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment] - None makes the import fail
