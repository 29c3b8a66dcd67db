"""What a result discloses about data beyond the images it was tested on.

OpenOOD keeps methods with outlier data apart, and table 1 of the open-set benchmark (OSOD) lists
external supervision, unknown labels and calibration. A run fills in what it knows, users state the
rest, and what nobody has stated is `not stated`, which is not `none`.
"""

from collections.abc import Iterable, Mapping, Sequence

from incognita.errors import InvalidDataError, unknown_name

NOT_STATED, NONE = "not stated", "none"
ANYTHING = "any"  # in a filter: data that was used, whichever
OUTLIER_DATA, EXTERNAL, UNKNOWN_LABELS = "outlier data", "external supervision", "unknown labels"
TUNING, CALIBRATION = "tuning data", "calibration data"
FIELDS = {
    OUTLIER_DATA: "unknown images that the model or the method was trained on",
    EXTERNAL: "labels, texts or networks from outside the known training images",
    UNKNOWN_LABELS: "images or boxes marked as unknown, used for anything but the test",
    TUNING: "data that the parameters of the method were chosen on",
    CALIBRATION: "held-out data that thresholds or parts of the method were fitted on",
}


def check_statements(stated: Mapping[str, str]) -> dict[str, str]:
    """Check what users state; hyphens stand for blanks in the names of fields.

    >>> check_statements({"outlier-data": "none"})
    {'outlier data': 'none'}
    """
    found = {}
    for name, text in stated.items():
        field = str(name).replace("-", " ").replace("_", " ").strip().lower()
        if field not in FIELDS:
            raise unknown_name("field of the disclosure", str(name), FIELDS)
        if not isinstance(text, str) or not text.strip():
            raise InvalidDataError(
                f"Expected a text for {field}, got {text!r:.80}. Write {NONE} if none was used."
            )
        found[field] = text.strip()
    return found


def parse_statements(texts: Iterable[str]) -> dict[str, str]:
    """Read statements such as `external-supervision=CLIP pre-training`."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, is_there, what = text.partition("=")
        if not is_there:
            raise InvalidDataError(
                f"Expected FIELD=TEXT, such as outlier-data=none, got {text!r:.80}. The fields "
                f"are {', '.join(FIELDS)}."
            )
        pairs |= check_statements({name: what})
    return pairs


def disclose(
    stated: Mapping[str, str], used: Mapping[str, Sequence[str]], unused: Iterable[str] = ()
) -> dict[str, str]:
    """Join what users state with what a run has used.

    Args:
        stated: What users state, by field.
        used: What the run itself has used.
        unused: Fields of which the run knows that nothing was used, unless it is in `used`.

    >>> disclose({"outlier data": "none"}, {"tuning data": ["validation images"]})["tuning data"]
    'validation images'
    """
    nothing = dict.fromkeys(FIELDS, NOT_STATED) | dict.fromkeys(unused, NONE)
    disclosed = {}
    for field, default in nothing.items():
        said = stated.get(field)
        parts = [*used.get(field, ()), *([said] if said not in (None, NONE) else [])]
        disclosed[field] = "; ".join(dict.fromkeys(parts)) or said or default
    return disclosed


def disclosure_of(provenance: Mapping[str, object]) -> dict[str, str]:
    """Return every field of a stored result; older results have stated nothing."""
    stored = provenance.get("disclosure")
    found = stored if isinstance(stored, Mapping) else {}
    return {field: str(found.get(field, NOT_STATED)) for field in FIELDS}


def matches(disclosed: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a disclosure says what is wanted; `any` stands for any data that was used.

    >>> matches({"outlier data": "80 Million Tiny Images"}, {"outlier data": "any"})
    True
    """
    return all(
        disclosed[field] not in (NONE, NOT_STATED)
        if text.lower() == ANYTHING
        else disclosed[field].lower() == text.lower()
        for field, text in wanted.items()
    )
