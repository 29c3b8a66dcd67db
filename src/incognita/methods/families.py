"""The families of methods that tables average over."""

from enum import StrEnum

from incognita.containers.needs import GramRows, MahalanobisStep, Needs, RankOneRemoved
from incognita.methods.method import Method

_INNER = Needs.LAYERS | Needs.LATENT | Needs.SHORTCUTS
_PROBES_OF_LAYERS = (GramRows, MahalanobisStep, RankOneRemoved)


class Family(StrEnum):
    """What a method looks at, in the words of FindMeIfYouCan, section 5.2.

    OUTPUT: the logits. FEATURE: the vector before the head. MIXED: that vector together with the
    logits or the head. LATENT: layers before it.
    """

    OUTPUT = "output-based"
    FEATURE = "feature-space"
    MIXED = "mixed"
    LATENT = "latent-space"


def family_of(method: Method) -> Family:
    """Tell the family of a method by what it needs; one that hands over needs both.

    >>> from incognita.methods import load_method
    >>> [str(family_of(load_method(name))) for name in ("energy", "knn", "vim", "lard")]
    ['output-based', 'feature-space', 'mixed', 'latent-space']
    """
    needs = method.all_needs
    if needs & _INNER or any(isinstance(probe, _PROBES_OF_LAYERS) for probe in method.probes()):
        return Family.LATENT
    if not needs & (Needs.FEATURES | Needs.HEAD):
        return Family.OUTPUT
    return Family.MIXED if needs & (Needs.LOGITS | Needs.HEAD) else Family.FEATURE
