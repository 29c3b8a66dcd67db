"""Damage to valid files, chosen by a few random bytes: quick to generate, and to make smaller."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

NOISE = st.binary(min_size=4, max_size=24)
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2.5, -0.0, 1e308, -1e308, 10**12, 10**30, -(10**30), 2**63, 2**64,
    float("nan"), float("inf"), "", " ", "a", "car", "0", "-1", "\0", "a\0b", "\x1b[31mred",
    "../..", "../../x", "/etc/passwd", "/", ".", "..", "C:\\x", "x" * 5000, "é", "\u202e",
    "[]", [], [[]], {}, {"": {}}, [0], [0, 0], [1, 2], [0, 0, 1, 1], [-1, -1, -1, -1],
    [1e308] * 4, [None] * 4,
    ["a", "a"], {"a": "b"}, {"id": 1}, [{}], [{"id": 1, "name": "car"}] * 2, "folder", "coco",
)  # fmt: skip
SPLICES = (
    b"", b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\n", b"\r", b"\t", b" ", b"[" * 3000, b"{",
    b"}", b"]", b",", b":", b'"', b"'", b"\\", b"\\u", b"\\ud800", b"\x1b[2J", b"-", b"+", b".",
    b"e", b"1" * 5000, b"1e999", b"NaN", b"Infinity", b"true", b"null", b"=", b"#", b'"""',
    b"[[set]]\n", b"../", b"/", b"%", b"1e-400", b"9223372036854775808", b"\x1f\x8b", b"PK\x03\x04",
    b"\xed\xa0\x80",
)  # fmt: skip


def numbers(noise: bytes) -> Iterator[int]:
    """Yield numbers made of two bytes each, and zeros at the end."""
    for k in range(0, len(noise) - 1, 2):
        yield noise[k] * 256 + noise[k + 1]
    while True:
        yield 0


def damaged_bytes(content: bytes, noise: bytes) -> bytes:
    """Cut, repeat, overwrite or splice a few stretches of bytes."""
    take = numbers(noise)
    for _ in range(1 + next(take) % 3):
        start = next(take) % (len(content) + 1)
        end = min(len(content), start + next(take) % 9)
        kind = next(take)
        if kind % 8 == 0:
            content = content[:start]
        elif kind % 8 == 1:
            content = content[:start] + content[start:end] * 2 + content[end:]
        elif kind % 8 < 5:
            content = content[:start] + bytes([next(take) % 256]) + content[start + 1 :]
        else:
            content = content[:start] + SPLICES[next(take) % len(SPLICES)] + content[end:]
    return content


def damaged_document(document: Any, noise: bytes) -> Any:
    """Replace, remove, repeat or rename a few values of a document."""
    document, take = copy.deepcopy(document), numbers(noise)
    for _ in range(1 + next(take) % 3):
        holder, key = _place(document, take)
        value = HOSTILE[next(take) % len(HOSTILE)]
        kind = next(take) % 8
        if holder is None:
            return value
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif kind == 1:
            holder[str(value)[:50]] = holder.pop(key)
        else:
            holder[key] = copy.deepcopy(value)
    return document


def _place(document: Any, take: Iterator[int]) -> tuple[Any, Any]:
    """Walk down a document; now and then stop before its end."""
    holder, key, here = None, None, document
    while isinstance(here, dict | list) and here and (holder is None or next(take) % 8):
        keys = list(here) if isinstance(here, dict) else range(len(here))
        holder, key = here, keys[next(take) % len(keys)]
        here = holder[key]
    return holder, key


def as_toml(value: Any) -> str:
    """Write a document as TOML, as far as TOML can say it."""
    return "".join(f"{_key(key)} = {_value(item)}\n" for key, item in value.items())


def _key(key: str) -> str:
    return _value(str(key))


_WRITERS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: str(value).lower(),
    type(None): lambda _: '"None"',
    dict: lambda value: (
        "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    ),
    list: lambda value: "[" + ", ".join(map(_value, value)) + "]",
    str: lambda value: '"' + "".join(_letter(letter) for letter in value) + '"',
}


def _value(value: Any) -> str:
    return _WRITERS.get(type(value), repr)(value)


def _letter(letter: str) -> str:
    is_plain = letter.isprintable() and letter not in '"\\'
    return letter if is_plain else f"\\U{ord(letter):08x}"
