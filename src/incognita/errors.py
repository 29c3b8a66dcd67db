"""The errors incognita raises, each also the built-in error people expect.

    IncognitaError
    ├── InvalidDataError (ValueError)     the content of an array or a file is wrong
    ├── MissingDataError (FileNotFoundError)  a file that was named is not there
    ├── UnknownNameError (KeyError)       no metric, class, … has that name
    ├── MissingExtraError (ImportError)   an optional library is not installed
    └── WorkerError (RuntimeError)        a process that was started to help has failed

Every message is one sentence: what came, what was expected, what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class IncognitaError(Exception):
    """The base of every error that incognita raises on purpose."""


class InvalidDataError(IncognitaError, ValueError):
    """The content of an array or a file is not what it must be."""


class MissingDataError(IncognitaError, FileNotFoundError):
    """A file or folder that was named does not exist."""


class MissingExtraError(IncognitaError, ImportError):
    """An optional library is needed and not installed."""


class WorkerError(IncognitaError, RuntimeError):
    """A process that was started to share the work died or failed."""


class UnknownNameError(IncognitaError, KeyError):
    """Nothing is registered under the name that was asked for."""

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
