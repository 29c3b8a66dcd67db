"""File access: regular files only, plain or gzip-compressed; JSON; atomic writes."""

import errno
import gzip
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any

from incognita.errors import InvalidDataError, MissingDataError, StorageError


class RepeatedKeyObject(dict[str, Any]):
    """A JSON object with a repeated key, whose first value `json` would drop silently."""

    repeated: str


def object_from_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object, and mark it if a key is repeated."""
    record = dict(pairs)
    if len(record) == len(pairs):
        return record
    marked = RepeatedKeyObject(record)
    keys = [key for key, _ in pairs]
    marked.repeated = next(key for key in keys if keys.count(key) > 1)
    return marked


_GZIP_MARK = b"\x1f\x8b"


def check_regular(
    path: Path, kind: str = "file", *, at: str = "at ", advice: str = "check the path"
) -> None:
    """Raise unless a path leads to a regular file: a pipe would be waited for without end.

    Args:
        path: The path; links are followed.
        kind: What the file should be, for the message.
        at: Joins the kind and the path in the message about a missing file.
        advice: Ends that message.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingDataError(f"There is no {kind} {at}{path}; {advice}.") from error
    except (OSError, ValueError) as error:  # no access, links in a circle, NUL or surrogates
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise MissingDataError(f"There is no {kind} {at}{path}; {advice}.") from error
        reason = getattr(error, "strerror", None) or "it is not a valid path"
        raise InvalidDataError(f"{path} cannot be opened: {reason}; {advice}.") from error
    if stat.S_ISDIR(mode):
        raise InvalidDataError(f"{path} is a folder, but a file is expected; name one inside it.")
    if not stat.S_ISREG(mode):
        raise InvalidDataError(f"{path} is a pipe or device; write its content to a file first.")


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """Open an existing file; gzip is recognized by content and unpacked."""
    check_regular(path)
    with path.open("rb") as plain:
        if plain.peek(2)[:2] != _GZIP_MARK:
            yield plain
            return
        try:
            with gzip.open(plain) as unpacked:
                yield unpacked
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidDataError(
                f"{path} cannot be unpacked: {error}; copy or write the file again."
            ) from error


def load_json(
    path: Path, *, build: Callable[[list[tuple[str, Any]]], Any] = object_from_pairs
) -> Any:
    """Load a JSON file; objects with a repeated key are marked.

    Args:
        path: The file.
        build: Builds an object from its keys and values; dropping unneeded ones saves memory
            while a large file is read.
    """
    with opened(path) as file:
        data = file.read()
    if not data.strip():
        raise InvalidDataError(f"{path} is empty; write the file again.")
    try:
        text = data.decode(json.detect_encoding(data), "surrogatepass")
        del data  # not beside the text and the objects, in a file of gigabytes
        return json.loads(text, object_pairs_hook=build)
    except json.JSONDecodeError as error:
        raise InvalidDataError(
            f"{path} is broken or incomplete JSON at line {error.lineno}, column {error.colno} "
            f"(character {error.pos}): {error.msg}; write the file again."
        ) from None
    except (ValueError, RecursionError) as error:
        reason = why_unreadable(error)
        raise InvalidDataError(f"{path} is not JSON: {reason}; write the file again.") from None


def why_unreadable(error: Exception) -> str:
    """Return in a few words why a parser gave up, without what Python advises.

    >>> why_unreadable(RecursionError("maximum recursion depth exceeded"))
    'its brackets are nested too deeply'
    """
    if isinstance(error, RecursionError):
        return "its brackets are nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    if "integer string conversion" in str(error):
        return "a number has more than 4,300 digits"
    return str(error)


FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # or a quota, or a limit of the process
_FULL_IN_WORDS = re.compile(
    "No space left|StorageFull|File too large|FileTooLarge|quota exceeded", re.IGNORECASE
)


@contextmanager
def reporting_full_disk(path: Path) -> Iterator[None]:
    """Turn the error of a full disk into a sentence that names the file.

    Libraries wrap the error of the system in classes of their own, and keep its words.
    """
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        is_full = isinstance(error, OSError) and error.errno in FULL_DISK
        if not is_full and not _FULL_IN_WORDS.search(str(error)):
            raise
        raise StorageError(
            f"{path} cannot be written, since the disk is full. Make room and start the same "
            f"command again; what is finished is kept."
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that replaces it only on success.

    Links are followed; devices and pipes are written to directly, never replaced.
    """
    path = Path(os.path.realpath(path))  # resolve() raises where links go in a circle
    if path.is_dir():
        raise InvalidDataError(f"{path} is a folder, but a file is expected; name one inside it.")
    if not path.parent.is_dir():
        raise MissingDataError(f"There is no folder {path.parent} to write into; make it first.")
    if path.exists() and not path.is_file():
        with reporting_full_disk(path):
            yield path
        return
    if path.exists() and not os.access(path, os.W_OK):
        raise InvalidDataError(f"{path} may not be written; name another file.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with reporting_full_disk(path):
            yield temporary
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_text(path: Path) -> Iterator[IO[str]]:
    """Open a text file that replaces `path` only on success; `.gz` compresses."""
    with replacing(path) as temporary:
        if path.suffix == ".gz":
            with gzip.open(temporary, "wt", encoding="utf-8") as file:
                yield file
        else:
            with temporary.open("w", encoding="utf-8") as file:
                yield file
