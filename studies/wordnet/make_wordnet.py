"""Make the noun table of `incognita.semantics` from the files of WordNet 3.0.

    python studies/wordnet/make_wordnet.py /usr/share/wordnet     # Debian's wordnet-base
    python studies/wordnet/make_wordnet.py wordnet-3.0-dict.tar.xz

Nothing but the input decides what is written: two runs give the same bytes.
"""

import argparse
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

FILES = ("data.noun", "index.noun", "noun.exc")
OUT = Path(__file__).parents[2] / "src" / "incognita" / "semantics" / "data" / "wordnet.npz"
RELATIONS = {
    "hypernyms": "@",
    "instance_hypernyms": "@i",
    "parts": "%p",
    "members": "%m",
    "substances": "%s",
}


@dataclass
class Line:
    """One synset of data.noun: offsets of other synsets by pointer symbol, words as written."""

    offset: int
    words: list[str]
    definition: str
    pointers: dict[str, list[int]] = field(default_factory=dict)


def main() -> None:
    """Write the table into the package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wordnet", type=Path, help="folder or tar file with data.noun")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    np.savez_compressed(asked.out, **make_table(read_files(asked.wordnet)))
    print(f"{asked.out}: {asked.out.stat().st_size:,} bytes")


def read_files(path: Path) -> dict[str, str]:
    """Read the three files from a folder, or from anywhere inside a tar file."""
    if path.is_dir():
        return {name: (path / name).read_text("latin1") for name in FILES}
    with tarfile.open(path) as archive:
        members = {Path(member.name).name: member for member in archive if member.isfile()}
        return {name: archive.extractfile(members[name]).read().decode("latin1") for name in FILES}


def make_table(files: dict[str, str]) -> dict[str, np.ndarray]:
    """Build the arrays; synsets are numbered in the order of their offsets."""
    synsets = [parse(line) for line in content_lines(files["data.noun"])]
    numbers = {synset.offset: number for number, synset in enumerate(synsets)}
    senses = sense_numbers(files["index.noun"])
    table = {
        "offsets": np.array([synset.offset for synset in synsets], np.int32),
        "words": as_bytes("\n".join(" ".join(synset.words) for synset in synsets)),
        "senses": np.array(
            [senses[word.lower(), synset.offset] for synset in synsets for word in synset.words],
            np.uint8,
        ),
        "definitions": as_bytes("\n".join(synset.definition for synset in synsets)),
        "exceptions": as_bytes(files["noun.exc"].strip()),
    }
    for relation, symbol in RELATIONS.items():
        targets = [synset.pointers.get(symbol, []) for synset in synsets]
        table[f"{relation}_counts"] = np.array([len(row) for row in targets], np.uint8)
        flat = [numbers[offset] for row in targets for offset in row]
        table[relation] = np.array(flat, np.int32)
    return table


def content_lines(text: str) -> Iterator[str]:
    """Skip the licence, whose lines begin with a space."""
    return (line for line in text.splitlines() if line and not line.startswith(" "))


def parse(line: str) -> Line:
    """Read a line of data.noun; its layout is described in wndb(5WN)."""
    data, _, gloss = line.partition(" | ")
    fields = data.split()
    n_words = int(fields[3], 16)
    synset = Line(int(fields[0]), fields[4 : 4 + 2 * n_words : 2], definition_of(gloss))
    pointers = fields[5 + 2 * n_words :]
    for symbol, offset, part_of_speech in zip(*(pointers[k::4] for k in range(3)), strict=True):
        if part_of_speech == "n":
            synset.pointers.setdefault(symbol, []).append(int(offset))
    return synset


def definition_of(gloss: str) -> str:
    """Return a gloss without its examples, which stand in quotation marks."""
    return re.split(r'[;:,]? *"', gloss.strip(), maxsplit=1)[0].strip().rstrip(";")


def sense_numbers(index: str) -> dict[tuple[str, int], int]:
    """Return the place of each synset among the senses of its lemmas, from 1."""
    senses = {}
    for line in content_lines(index):
        fields = line.split()
        for place, offset in enumerate(fields[-int(fields[2]) :], start=1):
            senses[fields[0], int(offset)] = place
    return senses


def as_bytes(text: str) -> np.ndarray:
    """Store a text as UTF-8."""
    return np.frombuffer(text.encode(), np.uint8)


if __name__ == "__main__":
    main()
