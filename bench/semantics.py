"""Three similarities of 1000 x 365 nouns, against nltk on a share of the rows.

nltk reads the files of WordNet in the data folder (INCOGNITA_DATA).
"""

import os
import tarfile
import tempfile
import warnings
from pathlib import Path

import numpy as np

from bench.harness import Row, Run, at_least, at_most, measure, peer, timed
from incognita.semantics import load_wordnet, similarities
from incognita.semantics.wordnet import WordNet

N_ROWS, N_COLUMNS, N_ROWS_OF_NLTK = 1000, 365, 5
OURS, THEIRS = "incognita, 1000 x 365", f"nltk, {N_ROWS_OF_NLTK} x 365"
DATA = Path(os.environ.get("INCOGNITA_DATA", Path(__file__).parents[2] / "shared" / "data"))
ARCHIVE = DATA / "lexical" / "wordnet-3.0-dict.tar.xz"


def rows() -> list[Row]:
    wordnet = load_wordnet()
    chosen = np.random.default_rng(0).choice(len(wordnet), N_ROWS + N_COLUMNS, replace=False)
    names = [wordnet.name(row) for row in chosen.tolist()]
    first, second = names[:N_ROWS], names[N_ROWS:]
    cases: dict[str, Run | None] = {
        OURS: lambda: similarities(first, second),
        THEIRS: peer("nltk", lambda: nltk_similarities(first[:N_ROWS_OF_NLTK], second)),
        "read the table and its lemmas": lambda: WordNet().senses("dog"),
    }
    costs = measure(cases, rounds=3)
    part = "path, lch and wup"
    ours = timed(part, OURS, costs[OURS].seconds, at_most(0.5))
    load = timed(
        "loading", "table, lemmas", costs["read the table and its lemmas"].seconds, at_most(0.3)
    )
    return [ours, against_nltk(part, costs[OURS].seconds, costs.get(THEIRS)), load]


def against_nltk(part: str, ours: float, theirs) -> Row:
    bar = at_least(1000)
    if theirs is None:
        return Row(part, THEIRS, unit="not installed", bar=str(bar))
    ratio = theirs.seconds * N_ROWS / N_ROWS_OF_NLTK / ours
    return Row(
        part, THEIRS, theirs.seconds, ratio, "x ours, per pair", None, str(bar), bar.is_met(ratio)
    )


def nltk_similarities(first: list[str], second: list[str]) -> Run:
    """Prepare nltk's reader; stop where its values differ from ours."""
    reader = open_reader()
    a, b = ([reader.synset(name) for name in names] for names in (first, second))

    def run() -> np.ndarray:
        return np.array(
            [
                [(x.path_similarity(y), x.lch_similarity(y), x.wup_similarity(y)) for y in b]
                for x in a
            ]
        )

    if not np.array_equal(run(), np.stack(similarities(first, second), axis=-1)):
        raise SystemExit("incognita's similarities differ from nltk's.")
    return run


def open_reader():
    """Open nltk on the files of the data folder, without other versions or languages."""
    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class OneVersion(WordNetCorpusReader):
        def map_wn(self, version="wordnet"):
            return None

    folder = tempfile.mkdtemp()
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    nltk.data.path.insert(0, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return OneVersion(str(Path(folder) / "wordnet-3.0"), None)
