"""What class names mean: their synsets in WordNet, and how alike they are."""

from typing import TYPE_CHECKING

from incognita.registry import attach

if TYPE_CHECKING:
    from incognita.semantics.class_names import ClassSynset as ClassSynset
    from incognita.semantics.class_names import SynsetMap as SynsetMap
    from incognita.semantics.class_names import list_synset_maps as list_synset_maps
    from incognita.semantics.class_names import load_overrides as load_overrides
    from incognita.semantics.class_names import load_synset_map as load_synset_map
    from incognita.semantics.class_names import map_classes as map_classes
    from incognita.semantics.similarity import class_distance as class_distance
    from incognita.semantics.similarity import lch_similarity as lch_similarity
    from incognita.semantics.similarity import nearest_classes as nearest_classes
    from incognita.semantics.similarity import path_similarity as path_similarity
    from incognita.semantics.similarity import similarities as similarities
    from incognita.semantics.similarity import wup_similarity as wup_similarity
    from incognita.semantics.wordnet import WordNet as WordNet
    from incognita.semantics.wordnet import load_wordnet as load_wordnet

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".class_names": [
            "ClassSynset",
            "SynsetMap",
            "list_synset_maps",
            "load_overrides",
            "load_synset_map",
            "map_classes",
        ],
        ".similarity": [
            "class_distance",
            "lch_similarity",
            "nearest_classes",
            "path_similarity",
            "similarities",
            "wup_similarity",
        ],
        ".wordnet": ["WordNet", "load_wordnet"],
    },
)
