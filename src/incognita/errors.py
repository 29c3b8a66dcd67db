"""The errors incognita raises, each also the built-in error people expect.

    IncognitaError
    ├── InvalidDataError (ValueError)     the content of an array or a file is wrong
    ├── MissingDataError (FileNotFoundError)  a file does not exist
    ├── UnknownNameError (KeyError)       no metric, class, … has this name
    ├── MissingExtraError (ImportError)   an optional library is not installed
    ├── StorageError (OSError)            the disk is full
    │   └── NoSpaceError                  the disk cannot hold what would be written
    └── WorkerError (RuntimeError)        a worker process has failed

Messages say what was expected, what was received and what to do.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST_WORD, _LONGEST_TEXT = 300, 4000  # characters; paths may be long
# control characters but newline and tab, and characters that turn the direction of the text
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Return text that a terminal shows as it is: names in it come from files of others.

    Control characters become escapes, and very long words and texts are cut.

    >>> printable("a \x1b[31mred class")
    'a \\x1b[31mred class'
    >>> len(printable("x" * 1000))
    301
    """
    text = UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)
    text = re.sub(rf"(\S{{{_LONGEST_WORD}}})\S+", r"\1…", text)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


class IncognitaError(Exception):
    """Base class of all errors that incognita raises."""

    def __str__(self) -> str:
        return printable(super().__str__())


class InvalidDataError(IncognitaError, ValueError):
    """The content of an array or a file is invalid."""


class MissingDataError(IncognitaError, FileNotFoundError):
    """A file or folder does not exist."""


class MissingExtraError(IncognitaError, ImportError):
    """An optional library is needed and not installed."""


class StorageError(IncognitaError, OSError):
    """A file cannot be written, because there is no room for it."""


class NoSpaceError(StorageError):
    """The disk cannot hold what would be written; nothing was written yet."""


class WorkerError(IncognitaError, RuntimeError):
    """A worker process died or failed."""


class UnknownNameError(IncognitaError, KeyError):
    """Nothing is registered under this name."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence should be shown as written.
        return printable(str(self.args[0])) if self.args else ""


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
