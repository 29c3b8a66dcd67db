"""The results scanner against `json` and `float`: the same bits, or left to `json`."""

import io
import json
import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from incognita.formats.coco_results import ResultColumns, decode_results
from incognita.kernels.coco_json import SHORTEST_RECORD

RECORD = {"image_id": 7, "category_id": 3, "bbox": [1.5, 2, 30.25, 4e1], "score": 0.875}
SPACE = st.text(alphabet=" \t\r\n", max_size=2)


class Trickle(io.BufferedIOBase):
    """A stream that gives a few bytes at a time, so that records are cut everywhere."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data, self._step, self._position = data, step, 0

    def readinto(self, target: Any) -> int:
        part = self._data[self._position : self._position + min(self._step, len(target))]
        target[: len(part)] = part
        self._position += len(part)
        return len(part)


def decode(data: bytes | str) -> ResultColumns | None:
    return decode_results(io.BytesIO(data.encode() if isinstance(data, str) else data))


def record_with(**texts: str) -> str:
    """One record in a list, with some values given as JSON text."""
    fields = {key: json.dumps(value) for key, value in RECORD.items()} | texts
    return "[{" + ",".join(f'"{key}":{text}' for key, text in fields.items()) + "}]"


def assert_reads_like_json(data: str) -> None:
    columns, records = decode(data), json.loads(data)
    assert columns is not None
    assert columns.image_ids.tolist() == [record["image_id"] for record in records]
    assert columns.category_ids.tolist() == [record["category_id"] for record in records]
    boxes = np.array([record["bbox"] for record in records], np.float64).reshape(-1, 4)
    scores = np.array([record["score"] for record in records], np.float64)
    # +0.0: `json` reads the token -0 as an integer and so loses its sign
    assert (columns.xywh + 0.0).tobytes() == (boxes + 0.0).tobytes()
    assert (columns.confidence + 0.0).tobytes() == (scores + 0.0).tobytes()


def decoded_numbers(tokens: list[str]) -> np.ndarray:
    columns = decode("[" + ",".join(record_with(score=token)[1:-1] for token in tokens) + "]")
    assert columns is not None
    return columns.confidence


def assert_converts_like_float(tokens: list[str]) -> None:
    found, expected = decoded_numbers(tokens), np.array([float(token) for token in tokens])
    wrong = np.flatnonzero(found.view(np.int64) != expected.view(np.int64))
    assert not len(wrong), [(tokens[i], found[i].hex(), expected[i].hex()) for i in wrong[:5]]


# --- numbers ---------------------------------------------------------------------------------

floats = st.floats(allow_nan=False, allow_infinity=False)
written = st.builds(
    lambda sign, whole, fraction, power: f"{sign}{whole}{fraction}{power}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**25).map(str),
    st.one_of(st.just(""), st.text("0123456789", min_size=1, max_size=30).map(".{}".format)),
    st.one_of(
        st.just(""),
        st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]),
                  st.integers(0, 400)),
    ),
)  # fmt: skip
precise = st.builds(lambda value, digits: f"{value:.{digits}e}", floats, st.integers(0, 25))


@given(st.lists(st.one_of(floats.map(repr), written, precise), min_size=1))
@example(
    ["5e-324", "4.9406564584124654e-324", "2.2250738585072011e-308", "2.2250738585072014e-308"]
)
@example(
    ["1.7976931348623157e308", "-1.7976931348623157E+308", "1e-400", "0e999999999999999999999"]
)
@example(
    ["-0", "-0.0", "0.0e-5", "9007199254740993", "9007199254740992.5", "1e22", "1e23", "-1e-22"]
)
def test_a_number_is_what_float_makes_of_it(tokens: list[str]) -> None:
    assert_converts_like_float(tokens)


def test_many_random_doubles_keep_all_their_bits() -> None:
    rng = random.Random(0)
    bits = (struct.unpack("d", rng.randbytes(8))[0] for _ in range(20_000))
    assert_converts_like_float([repr(value) for value in bits if np.isfinite(value)])
    assert_converts_like_float([repr(rng.uniform(0, 640)) for _ in range(20_000)])


def test_numbers_halfway_between_two_floats_round_to_even() -> None:
    rng = random.Random(1)
    odd = [2 * (rng.getrandbits(53) | 1 << 52) + 1 for _ in range(5_000)]
    assert_converts_like_float([str(value + rng.choice([-1, 0, 1])) for value in odd])
    assert_converts_like_float([f"{value}e{rng.randint(-30, 30)}" for value in odd])
    assert_converts_like_float([f"{value // 4}.{25 * (value % 4):02}" for value in odd])


def test_more_hard_numbers_than_the_list_holds() -> None:
    assert_converts_like_float([f"0.{i:040}" for i in range(1, 10_000)])


@pytest.mark.parametrize("token", ["01", "1.", ".5", "-", "+1", "1e", "1e+", "0x1", "1_0", "--1"])
def test_what_json_does_not_call_a_number_is_malformed(token: str) -> None:
    assert decode(record_with(score=token)) is None
    assert decode(record_with(extra=token)) is None


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "null", "true", '"0.5"', "[]"])
def test_a_score_that_is_no_number_is_left_to_json(token: str) -> None:
    assert decode(record_with(score=token)) is None


@pytest.mark.parametrize("token", ["3.0", "3e0", '"3"', "1234567890123456789", "true", "-"])
def test_an_id_that_is_not_a_short_integer_is_left_to_json(token: str) -> None:
    assert decode(record_with(image_id=token)) is None


def test_ids_may_be_zero_negative_and_long() -> None:
    columns = decode(record_with(image_id="-0", category_id="-999999999999999999"))
    assert columns is not None
    assert columns.image_ids.tolist() == [0]
    assert columns.category_ids.tolist() == [-999999999999999999]


# --- structure -------------------------------------------------------------------------------

texts = st.text(alphabet='ab_ "\\/\né😀\x00', max_size=6)
extras = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), floats, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A results list in any key order, with foreign keys, and white space wherever it may be."""

    def spaced(*tokens: str) -> str:
        return "".join(draw(SPACE) + token for token in tokens) + draw(SPACE)

    records = []
    for _ in range(draw(st.integers(0, 4))):
        box = [spaced(repr(draw(floats))) for _ in range(4)]
        fields = {
            '"image_id"': str(draw(st.integers(-(10**17), 10**17))),
            '"category_id"': str(draw(st.integers(0, 90))),
            '"bbox"': spaced("[", ",".join(box), "]"),
            '"score"': repr(draw(floats)),
        }
        foreign = draw(st.dictionaries(texts, extras, max_size=2))
        # a key with an escape is left to json, because it may spell one of ours
        plain = {k: v for k, v in foreign.items() if "\\" not in json.dumps(k)}
        fields |= {json.dumps(key): json.dumps(value) for key, value in plain.items()}
        order = draw(st.permutations(list(fields)))
        records.append(spaced("{", ",".join(spaced(k, ":", fields[k]) for k in order), "}"))
    return spaced("[", ",".join(records), "]")


@given(documents())
@settings(max_examples=300)
def test_any_order_white_space_and_foreign_keys(document: str) -> None:
    assert_reads_like_json(document)


@given(documents(), st.integers(1, 40))
def test_records_cut_by_the_window_are_read_whole(document: str, step: int) -> None:
    whole, trickled = decode(document), decode_results(Trickle(document.encode(), step))
    assert whole is not None
    assert trickled is not None
    for expected, found in zip(whole, trickled, strict=True):
        assert expected.tobytes() == found.tobytes()


def test_an_empty_list_has_no_rows() -> None:
    columns = decode(" [ \n] ")
    assert columns is not None
    assert [len(column) for column in columns] == [0, 0, 0, 0]


def test_a_record_longer_than_the_window() -> None:
    text = record_with(note=json.dumps("x" * 3_000_000), path=json.dumps([[0.5] * 500_000]))
    columns = decode("[" + ",".join([text[1:-1]] * 3) + "]")
    assert columns is not None
    assert columns.confidence.tolist() == [0.875] * 3


def test_more_records_than_one_chunk_holds() -> None:
    records = [RECORD | {"image_id": i, "score": i / 7} for i in range(40_000)]
    assert_reads_like_json(json.dumps(records))


@pytest.mark.parametrize("twice", ['"score":0.5', '"image_id":7', '"sc\\u006fre":0.5'])
def test_a_repeated_key_is_left_to_json(twice: str) -> None:
    records = ",".join([record_with()[1:-1]] * 3)
    assert decode("[" + records[:-1] + "," + twice + "}]") is None


def test_the_shortest_record_is_no_longer_than_the_columns_assume() -> None:
    text = record_with(image_id="0", category_id="0", bbox="[0,0,0,0]", score="0")
    assert len(text[1:-1] + ",") == SHORTEST_RECORD
    assert_reads_like_json("[" + ",".join([text[1:-1]] * 50_000) + "]")


@pytest.mark.parametrize(
    "data",
    [
        "", " ", "{}", "null", "[", "[,]", "[1]", "[[]]", "[null]", "[{}]", "]", '{"results": []}',
        "[] []", "[]x", "[]\0", record_with()[:-1], record_with()[:-1] + ",]", record_with() + ",",
        "[" + record_with()[1:-1] * 2 + "]",
        record_with(bbox="[1,2,3]"), record_with(bbox="[1,2,3,4,]"),
        record_with(bbox="[1,2,3,4,5]"),
        record_with(bbox="[]"), record_with(bbox="5"), record_with(bbox="[1 2,3,4]"),
        record_with(extra="[1,]"), record_with(extra="[1 2]"), record_with(extra="{1:2}"),
        record_with(extra='{"a"}'), record_with(extra='{"a":}'), record_with(extra='{"a":1,}'),
        record_with(extra="[}"), record_with(extra="{]"), record_with(extra="tru"),
        record_with(extra="nulll"), record_with(extra='"\\x"'), record_with(extra='"\\u12g4"'),
        record_with(extra='"a\nb"'), record_with(extra="'a'"), record_with(extra=""),
        record_with().replace('"score"', '"scor"'), record_with().replace('"score"', '"image_id"'),
        record_with().replace('"score":', '"score"'), record_with().replace('"score"', "score"),
        record_with().replace('"score"', '"sc\\u006fre"'), record_with().replace("}", ",}"),
        record_with(extra="[" * 61 + "]" * 61), "\ufeff[]",
    ],
)  # fmt: skip
def test_whatever_is_not_plain_is_malformed(data: str) -> None:
    assert decode(data) is None


def test_bytes_that_may_be_broken_utf_8_are_left_to_json() -> None:
    assert decode(record_with(extra='"é"')) is None
    assert decode(record_with(extra='"é"').encode("latin-1")) is None


def test_nested_values_are_skipped_up_to_sixty_levels() -> None:
    assert_reads_like_json(record_with(extra="[" * 60 + "]" * 60))
    assert_reads_like_json(record_with(extra='{"a":' * 60 + "1" + "}" * 60))
