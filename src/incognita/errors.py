"""The errors incognita raises, each also the built-in error people expect.

    IncognitaError
    ├── InvalidDataError (ValueError)     the content of an array or a file is wrong
    ├── MissingDataError (FileNotFoundError)  a file does not exist
    ├── UnknownNameError (KeyError)       no metric, class, … has this name
    ├── MissingExtraError (ImportError)   an optional library is not installed
    └── WorkerError (RuntimeError)        a worker process has failed

Messages say what was expected, what was received and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class IncognitaError(Exception):
    """Base class of all errors that incognita raises."""


class InvalidDataError(IncognitaError, ValueError):
    """The content of an array or a file is invalid."""


class MissingDataError(IncognitaError, FileNotFoundError):
    """A file or folder does not exist."""


class MissingExtraError(IncognitaError, ImportError):
    """An optional library is needed and not installed."""


class WorkerError(IncognitaError, RuntimeError):
    """A worker process died or failed."""


class UnknownNameError(IncognitaError, KeyError):
    """Nothing is registered under this name."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence should be shown as written.
        return str(self.args[0]) if self.args else ""


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> UnknownNameError:
    """Build the error for a name that is not among the choices, with a suggestion.

    >>> unknown_name("metric", "aurco", ["auroc", "aupr"])
    UnknownNameError("No metric is called 'aurco'. Did you mean auroc?")
    >>> unknown_name("method", "MSP", ["msp", "energy"])
    UnknownNameError("No method is called 'MSP'. Did you mean msp?")
    """
    known = sorted(choices)
    folded = {choice.casefold(): choice for choice in known}
    close = get_close_matches(name[:200].casefold(), folded, n=1)
    if close:
        hint = f"Did you mean {folded[close[0]]}?"
    elif known:
        more = ", …" if len(known) > 20 else ""
        hint = f"Choose one of: {', '.join(known[:20])}{more}."
    else:
        hint = "There is none to choose from."
    shown = name if len(name) <= 60 else f"{name[:60]}…"
    return UnknownNameError(f"No {kind} is called {shown!r}. {hint}")


def count(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, as messages show it.

    >>> count(12345, "image"), count(1, "box", "boxes")
    ('12,345 images', '1 box')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"
