"""The command line: one file per command, nothing heavy imported before a command runs."""

import gc
import sys
from types import ModuleType
from typing import cast

from incognita.errors import IncognitaError, MissingDataError

WRONG_USAGE, DATA_MISSING, INTERRUPTED = 2, 3, 130
# numba imports these if they are there; no kernel of ours needs them
SPARED = ("scipy.linalg", "coverage")


def main() -> None:
    """Run a command; an error on purpose is one sentence and an exit code, never a traceback."""
    _start_fast()
    from incognita.cli.app import app

    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except IncognitaError as error:
        sys.stderr.write(f"incognita: {error}\n")
        sys.exit(DATA_MISSING if isinstance(error, MissingDataError) else WRONG_USAGE)


def _start_fast() -> None:
    """Save a quarter of a second of imports; only here, because it changes the whole process.

    Modules that numba imports on the off chance are hidden from it, and what imports leave behind
    is not searched for garbage until `collect_garbage_again`.
    """
    for name in SPARED:
        sys.modules.setdefault(name, cast("ModuleType", None))  # None: its import fails
    gc.disable()


def collect_garbage_again() -> None:
    """Call when a command has imported what it needs and begins to work."""
    gc.freeze()
    gc.enable()
