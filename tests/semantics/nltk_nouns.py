"""nltk's WordNet on the files of the data folder."""

import tarfile
import warnings
from pathlib import Path

import pytest


def open_nltk(data_dir: Path, temporary: Path):
    """Open nltk's reader on an unpacked copy; nothing is downloaded."""
    nltk = pytest.importorskip("nltk", reason="the three similarities are compared with nltk's")
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class OneVersion(WordNetCorpusReader):
        def map_wn(self, version="wordnet"):
            """Map no other version, which would need its files."""

    with tarfile.open(data_dir / "lexical" / "wordnet-3.0-dict.tar.xz") as archive:
        archive.extractall(temporary, filter="data")
    nltk.data.path.insert(0, str(temporary))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no other languages
        return OneVersion(str(temporary / "wordnet-3.0"), None)
