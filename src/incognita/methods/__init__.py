"""Post-hoc methods that score how unknown a row is.

Every method is registered under the name people type, and its class can be imported from here:

>>> from incognita.methods import KNN, load_method
>>> load_method("knn", k=10), KNN(k=10)
(KNN(k=10), KNN(k=10))
"""

from typing import Any

from incognita.registry import Registry, attach

_HERE = "incognita.methods"

METHODS = Registry(
    "method",
    {
        "msp": f"{_HERE}.softmax:MSP",
        "max-logit": f"{_HERE}.softmax:MaxLogit",
        "energy": f"{_HERE}.softmax:Energy",
        "temperature": f"{_HERE}.fitted_softmax:Temperature",
        "entropy": f"{_HERE}.softmax:Entropy",
        "gen": f"{_HERE}.softmax:GEN",
        "kl-matching": f"{_HERE}.fitted_softmax:KLMatching",
        "mcm": f"{_HERE}.softmax:MCM",
        "openmax": f"{_HERE}.openmax:OpenMax",
        "odin": f"{_HERE}.odin:ODIN",
        "odin-temperature": f"{_HERE}.odin:ODINTemperature",
        "odin-max-logit": f"{_HERE}.odin:ODINMaxLogit",
        "godin": f"{_HERE}.odin:GODIN",
        "mds": f"{_HERE}.mahalanobis:MDS",
        "mds-ensemble": f"{_HERE}.feature_maps:MDSEnsemble",
        "rmds": f"{_HERE}.mahalanobis:RMDS",
        "ssd": f"{_HERE}.mahalanobis:SSD",
        "gram": f"{_HERE}.gram:Gram",
        "gradnorm": f"{_HERE}.softmax:GradNorm",
        "react": f"{_HERE}.activation_shaping:ReAct",
        "dice": f"{_HERE}.activation_shaping:DICE",
        "dice+react": f"{_HERE}.activation_shaping:dice_react",
        "ash-p": f"{_HERE}.activation_shaping:ASHP",
        "ash-s": f"{_HERE}.activation_shaping:ASHS",
        "ash-b": f"{_HERE}.activation_shaping:ASHB",
        "scale": f"{_HERE}.activation_shaping:SCALE",
        "adascale": f"{_HERE}.adascale:AdaScale",
        "vra": f"{_HERE}.activation_shaping:VRA",
        "vim": f"{_HERE}.vim:ViM",
        "residual": f"{_HERE}.vim:Residual",
        "knn": f"{_HERE}.knn:KNN",
        "she": f"{_HERE}.prototypes:SHE",
        "nnguide": f"{_HERE}.knn:NNGuide",
        "fdbd": f"{_HERE}.prototypes:FDBD",
        "nci": f"{_HERE}.prototypes:NCI",
        "relation": f"{_HERE}.knn:Relation",
        "rankfeat": f"{_HERE}.feature_maps:RankFeat",
        "ddu": f"{_HERE}.mahalanobis:DDU",
        "opengan": f"{_HERE}.opengan:OpenGAN",
        "oodl": f"{_HERE}.one_class_svm:OODL",
        "lard": f"{_HERE}.lard:LaRD",
        "safe": f"{_HERE}.safe:SAFE",
        "mc-dropout": f"{_HERE}.ensembles:MCDropout",
        "ensemble": f"{_HERE}.ensembles:Ensemble",
    },
    group="incognita.methods",
)


__getattr__, __dir__, __all__ = attach(
    __name__,
    METHODS.exports(
        Method=f"{_HERE}.method:Method",
        Refit=f"{_HERE}.method:Refit",
        Rows=f"{_HERE}.method:Rows",
        Needs="incognita.containers.needs:Needs",
        ExtraOutput="incognita.containers.needs:ExtraOutput",
        PerHead=f"{_HERE}.per_head:PerHead",
        check_method=f"{_HERE}.contract:check_method",
        join_members=f"{_HERE}.ensembles:join_members",
        parse_method=f"{_HERE}.parse:parse_method",
        save_method=f"{_HERE}.saving:save_method",
        load_saved_method=f"{_HERE}.saving:load_saved_method",
    ),
)
__all__ += ["METHODS", "list_methods", "load_method"]


def list_methods(pattern: str = "*") -> list[str]:
    """List the names of the methods; those of plug-ins are the last.

    >>> list_methods("ash-*")
    ['ash-p', 'ash-s', 'ash-b']
    """
    return METHODS.names(pattern)


def load_method(name: str, **parameters: Any) -> Any:
    """Build a method from its name; in `"react+knn"` the first wraps the second.

    Parameters are those of the first method named.

    >>> load_method("react+knn", percentile=95).scorer.k
    50
    """
    from incognita.methods.parse import build

    return build(name, parameters)
