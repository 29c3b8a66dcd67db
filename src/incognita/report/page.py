"""A page as data, and the one function that turns it into a self-contained HTML file.

Every text is escaped by the template: names of classes, files and models come from strangers. Only
the stylesheet, the script and the figures that `charts.py` rebuilt element by element are inserted
as they are.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from incognita.errors import UNPRINTABLE, InvalidDataError
from incognita.report.charts import NO_VALUE, Chart, as_svg, csv_link, preview
from incognita.report.prose import paragraphs

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent
KINDS = {b"RIFF": "webp", b"\x89PNG": "png", b"\xff\xd8\xff\xe0": "jpeg"}  # by their first bytes


@dataclass(frozen=True, kw_only=True)
class PageColumn:
    """A column of a table.

    Args:
        key: Its name in the rows.
        label: What its head shows.
        direction: `up` where higher is better, `down` where lower is, else empty.
        definition: What the numbers are, in a sentence or two.
        convention: Which variant of the definition was used.
        is_number: Whether it is right aligned and sorted by value.
        is_shown: Whether it is shown before the reader chooses columns.
        is_choice: Whether rows can be filtered by its texts, of which there are few.
    """

    key: str
    label: str
    direction: Literal["up", "down", ""] = ""
    definition: str = ""
    convention: str = ""
    is_number: bool = True
    is_shown: bool = True
    is_choice: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell: its text, and what stands behind it.

    Args:
        text: What is shown.
        value: What it is sorted by and what a download holds; the text where None.
        margin: Half the interval or the interval, in lighter ink, such as `± 0.6`.
        note: More about it, opened by a click: support, or why there is no number.
        is_best: Whether it is the best of its column or cannot be told apart from it.
        href: A link; only to a place on the page, a relative path or https.
        tone: Whether it is good or bad news, such as a verdict; the text must say so, too.
    """

    text: str = NO_VALUE
    value: int | float | None = None
    margin: str = ""
    note: str = ""
    is_best: bool = False
    href: str = ""
    tone: Literal["good", "bad", ""] = ""

    def __post_init__(self) -> None:
        if self.href and not re.match(r"#|https://|(?!//)[^:]*$", self.href):
            raise InvalidDataError(
                f"Expected a link to the page, a relative path or https, got {self.href:.80}."
            )


@dataclass(frozen=True, kw_only=True)
class PageTable:
    """Rows of cells by the key of their column; a missing cell is shown as a dash.

    `row_ids` makes every row a place to link to; `name` is that of its download.
    """

    columns: tuple[PageColumn, ...]
    rows: tuple[Mapping[str, Cell], ...]
    caption: str = ""
    row_ids: tuple[str, ...] = ()
    name: str = "table"

    def __post_init__(self) -> None:
        if self.row_ids and len(self.row_ids) != len(self.rows):
            raise InvalidDataError(
                f"Expected an id for each of {len(self.rows)} rows, got {len(self.row_ids)}."
            )


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A thumbnail, what stands under it, and what a click shows beside it.

    Args:
        image: The bytes of a WebP, PNG or JPEG file.
        caption: A few words under the picture, such as the score and the predicted class.
        details: What is known about it: label and text.
        alt: What a reader who cannot see it is told; the caption where empty.
    """

    image: bytes
    caption: str
    details: tuple[tuple[str, str], ...] = ()
    alt: str = ""

    @property
    def uri(self) -> str:
        """The picture as a link that holds its bytes."""
        kind = next((kind for start, kind in KINDS.items() if self.image.startswith(start)), None)
        if kind is None:
            raise InvalidDataError(
                f"Expected the bytes of a WebP, PNG or JPEG file, got {self.image[:8]!r}."
            )
        return f"data:image/{kind};base64,{base64.b64encode(self.image).decode()}"


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Pictures of one kind, ranked; the title says which and how."""

    title: str
    pictures: tuple[Picture, ...]
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One question, one sentence that says what to see, and charts, tables or galleries.

    `anchor` is its place in a link; the question where empty.
    """

    question: str
    sentence: str
    parts: tuple[Chart | PageTable | Gallery, ...] = ()
    anchor: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page that opens with the answer.

    Args:
        title: What it is about, also the name of the browser's tab.
        answer: The finding in one sentence, written from the numbers.
        facts: Model, benchmark, images, date …: label and text.
        notes: What qualifies the numbers: the kind of note and a sentence.
        table: The numbers behind the answer.
        sections: One question each.
        footer: How to repeat the page: label and text.
    """

    title: str
    answer: str
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    table: PageTable | None = None
    sections: tuple[Section, ...] = ()
    footer: tuple[tuple[str, str], ...] = ()


@dataclass
class Anchors:
    """Places of one page to link to: readable, and no two the same."""

    used: set[str] = field(default_factory=set)

    def new(self, text: str) -> str:
        """Return an unused place.

        >>> anchors = Anchors()
        >>> anchors.new("Does shift look like novelty?"), anchors.new("<b>"), anchors.new("b")
        ('does-shift-look-like-novelty', 'b', 'b-2')
        """
        name = slug(text) or "part"
        free = next(
            n for k in count(1) if (n := name if k == 1 else f"{name}-{k}") not in self.used
        )
        self.used.add(free)
        return free


def slug(text: str) -> str:
    """Return a text as lower-case letters, digits and hyphens, for links and file names.

    >>> slug("../Énergie (tuned)")
    'nergie-tuned'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80].strip("-")


def render(page: Page, *, template: str = "page.html", **values: Any) -> str:
    """Return a page as one HTML file that needs nothing else.

    `template` is a file of `templates/`; `values` are further values for it.
    """
    anchors = Anchors()
    values |= {"page": page, "anchors": anchors}
    values["places"] = [anchors.new(part.anchor or part.question) for part in page.sections]
    html = environment().get_template(template).render(values)
    html = html.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
    # control characters, turned text and half a surrogate pair become escapes
    return UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], html)


@cache
def environment() -> "Environment":
    """Return the templates with what they all need; every text is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (_packed(FOLDER / name) for name in ("style.css", "script.js"))
    found.globals |= {"style": style, "script": script, "policy": _policy(style, script)}
    found.globals |= {
        "paragraphs": paragraphs,
        "as_svg": as_svg,
        "csv_link": csv_link,
        "preview": preview,
    }
    found.globals |= {"slug": slug, "empty_cell": Cell()}
    found.tests |= {
        "chart": lambda part: isinstance(part, Chart),
        "table": lambda part: isinstance(part, PageTable),
    }
    return found


def _packed(path: Path) -> str:
    """Return a stylesheet or a script as it stands in a page; its bytes are what is hashed."""
    text = path.read_text(encoding="utf-8")
    if "</" in text:
        raise InvalidDataError(f"Expected no closing tag in {path.name}. Write it in two parts.")
    return text


def _policy(style: str, script: str) -> str:
    """Return the policy of the page: its own style and script by hash, no request to anywhere."""

    def hashed(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashed(style)}'; "
        f"script-src 'sha256-{hashed(script)}'; base-uri 'none'; form-action 'none'"
    )
