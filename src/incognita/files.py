"""File access: regular files only, plain or gzip-compressed; JSON; atomic writes."""

import codecs
import errno
import gzip
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from hashlib import file_digest
from io import BufferedIOBase
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple

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


class JsonBatch(NamedTuple):
    """Records of one list of a large JSON file.

    Args:
        name: The key of the list; empty where the whole file is a list.
        first: How many records of the list have been in earlier batches.
        text: The records with commas between them, where they were not decoded.
        records: The decoded records.
    """

    name: str
    first: int
    text: str
    records: list[Any]


_CHUNK = 1 << 24  # characters that are read at once
_LONGEST_VALUE = 1 << 28  # characters; what is longer is taken for broken
_AFTER = (*",]} \t\r\n",)  # what may follow a number
_BATCH = 5_000  # records; one of a video frame takes 20 kB
_skip_space = re.compile(r"[ \t\r\n]*").match
_end_of_list = re.compile(r"\}[ \t\r\n]*\]").search
_decode_value = json.JSONDecoder().raw_decode


def json_batches(
    path: Path,
    *,
    flat: Collection[str] = (),
    on_read: Callable[[int], None] = lambda _: None,
) -> Iterator[JsonBatch]:
    """Read the lists of a JSON file of gigabytes, a part of the file after the other.

    The memory is that of a batch. A file is a list of records, or an object some of whose values
    are lists; other values are skipped. Of a key that a record repeats, the last value counts.

    Args:
        path: The file.
        flat: Names of lists whose records hold no further records, such as COCO's annotations
            without masks: they are passed on as text, which faster readers than `json` may take.
        on_read: Called with the number of characters read so far.
    """
    with opened(path) as file:
        window = _Window(path, file, on_read)
        opening = window.next_mark()
        if opening == "[":
            yield from _batches_of("", window, is_flat="" in flat)
        elif opening == "{":
            yield from _batches_of_object(window, flat)
        else:
            raise window.broken("a list or an object is expected")
        if window.next_mark():
            raise window.broken("something follows the end")


def _batches_of_object(window: "_Window", flat: Collection[str]) -> Iterator[JsonBatch]:
    while window.next_mark() != "}":
        window.step_back()
        key = window.value()
        if not isinstance(key, str) or window.next_mark() != ":":
            raise window.broken("a key in quotes and a colon are expected")
        if window.next_mark() == "[":
            yield from _batches_of(key, window, is_flat=key in flat)
        else:
            window.step_back()
            window.value()
        mark = window.next_mark()
        if mark == "}":
            return
        if mark != ",":
            raise window.broken("a comma is expected")


def _batches_of(name: str, window: "_Window", *, is_flat: bool) -> Iterator[JsonBatch]:
    """Yield the records of the list that the window has just entered."""
    first, records = 0, []
    mark = window.next_mark()
    if mark == "]":
        return
    window.step_back()
    while mark != "]":
        text = window.flat_records() if is_flat else ""
        if not text:
            records.append(window.value())
        mark = window.next_mark()
        if mark not in ("]", ","):
            raise window.broken("a comma or the end of the list is expected")
        if records and (text or mark == "]" or len(records) == _BATCH):
            yield JsonBatch(name, first, "", records)
            first, records = first + len(records), []
        if text:
            yield JsonBatch(name, first, text, [])
            first += text.count("{")


class _Window:
    """The part of a JSON file that is in memory, and a position in it."""

    def __init__(self, path: Path, file: BufferedIOBase, on_read: Callable[[int], None]) -> None:
        self._path, self._file, self._on_read = path, file, on_read
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._at, self._n_before, self._is_whole = "", 0, 0, False

    def broken(self, problem: str) -> InvalidDataError:
        """Build the error about the present position."""
        return InvalidDataError(
            f"{self._path} is broken or incomplete JSON near character "
            f"{self._n_before + self._at:,}: {problem}; get or write the file again."
        )

    def next_mark(self) -> str:
        """Skip space and return the next character; nothing at the end of the file."""
        while True:
            self._at = _skip_space(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                self._at += 1
                return self._text[self._at - 1]
            if not self._read():
                return ""

    def step_back(self) -> None:
        """Return to the character that was read last."""
        self._at -= 1

    def value(self) -> Any:
        """Decode the value that begins here, or after some space."""
        if not self.next_mark():
            raise self.broken("it ends too early")
        self.step_back()
        while True:
            try:
                found, end = _decode_value(self._text, self._at)
            except (ValueError, RecursionError):
                if len(self._text) - self._at > _LONGEST_VALUE or not self._read():
                    raise self.broken("a value is expected") from None
                continue
            length = end - self._at  # reading on moves the window
            is_whole = not isinstance(found, int | float) or self._text[end : end + 1] in _AFTER
            if is_whole or not self._read():  # a number may go on after the window
                self._at += length
                return found

    def flat_records(self) -> str:
        """Return all whole records in the window, as far as no brace is inside of another."""
        start = _skip_space(self._text, self._at).end()  # type: ignore[union-attr]
        found = _end_of_list(self._text, start)
        end = self._text.rfind("}", start) if found is None else found.start()
        text = self._text[start : end + 1]
        if text.startswith("{") and text.count("{") == text.count("}"):
            self._at = end + 1
            return text
        return ""

    def _read(self) -> bool:
        """Add a part of the file and forget what was passed; False at the end of the file."""
        if self._is_whole:
            return False
        self._n_before += self._at
        data = self._file.read(_CHUNK)
        self._is_whole = not data
        try:
            self._text = self._text[self._at :] + self._decode.decode(data, final=not data)
        except UnicodeDecodeError:
            raise self.broken("it is not UTF-8") from None
        self._at = 0
        self._on_read(self._n_before + len(self._text))
        return not self._is_whole


def json_path(path: str | PathLike[str]) -> Path:
    """Return the path of a JSON file; raise if it ends otherwise."""
    if Path(path).suffix != ".json":
        raise InvalidDataError(f"Expected a file that ends in .json, got {path}.")
    return Path(path)


def file_hash(path: Path) -> str:
    """Compute the sha256 of a file."""
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


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
