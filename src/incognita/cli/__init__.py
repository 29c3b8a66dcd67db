"""The command line: one file per command, nothing heavy imported before a command runs."""

import gc
import signal
import sys
from io import StringIO, TextIOWrapper
from types import FrameType, ModuleType
from typing import cast

from incognita.errors import IncognitaError, MissingDataError

WRONG_USAGE, DATA_MISSING, IN_PART, INTERRUPTED = 2, 3, 4, 130
# numba imports these if they are there; no kernel of ours needs them
SPARED = ("scipy.linalg", "coverage")
# torchvision loads a compiler for GPUs, which prints a page about leaks when the process ends
COMPILER = "triton"
_interrupts: list[int] = []


def main() -> None:
    """Run a command; an error on purpose is one sentence and an exit code, never a traceback."""
    _start_fast()
    signal.signal(signal.SIGINT, _interrupt)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever called us
            setattr(sys, name, StringIO())
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    from incognita.cli.app import app

    try:
        app()
    except IncognitaError as error:
        _leave(str(error), DATA_MISSING if isinstance(error, MissingDataError) else WRONG_USAGE)
    except MemoryError as error:
        _leave(f"There is not enough memory: {error}; ask for less at once.", WRONG_USAGE)
    except OSError as error:
        _leave(f"{error.filename or 'The output'}: {error.strerror}.", WRONG_USAGE)
    except BaseException:
        if _interrupts:  # compiled code turns an interrupt into errors of its own
            sys.exit(INTERRUPTED)
        raise


def _leave(sentence: str, code: int) -> None:
    sys.stderr.write(f"incognita: {sentence}\n")
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _interrupts.append(number)
    raise KeyboardInterrupt


def stop_if_interrupted() -> None:
    """Stop between two steps of work if an interrupt got lost inside compiled code."""
    if _interrupts:
        raise KeyboardInterrupt


def _start_fast() -> None:
    """Save a quarter of a second of imports; only here, because it changes the whole process.

    Modules that numba imports on the off chance are hidden from it, and what imports leave behind
    is not searched for garbage until `collect_garbage_again`.
    """
    for name in (*SPARED, COMPILER):
        sys.modules.setdefault(name, cast("ModuleType", None))  # None: its import fails
    gc.disable()


def collect_garbage_again() -> None:
    """Call when a command has imported what it needs and begins to work."""
    gc.freeze()
    gc.enable()


def import_everything_again(*, compiler: bool = False) -> None:
    """Call in a command that needs the libraries whose import was spared."""
    for name in (*SPARED, COMPILER) if compiler else SPARED:
        if name in sys.modules and sys.modules[name] is None:
            del sys.modules[name]
