"""How unknown: every method, by the name people type."""

from typing import Any

from incognita.registry import Registry

_HERE = "incognita.methods"

METHODS = Registry(
    "method",
    {
        "msp": f"{_HERE}.logits:MSP",
        "max-logit": f"{_HERE}.logits:MaxLogit",
        "energy": f"{_HERE}.logits:Energy",
        "temperature": f"{_HERE}.validated_logits:Temperature",
        "entropy": f"{_HERE}.logits:Entropy",
        "gen": f"{_HERE}.logits:GEN",
        "kl-matching": f"{_HERE}.validated_logits:KLMatching",
        "mcm": f"{_HERE}.logits:MCM",
        "openmax": f"{_HERE}.openmax:OpenMax",
        "odin": f"{_HERE}.input_steps:ODIN",
        "odin-temperature": f"{_HERE}.input_steps:ODINTemperature",
        "odin-max-logit": f"{_HERE}.input_steps:ODINMaxLogit",
        "godin": f"{_HERE}.input_steps:GODIN",
        "mds": f"{_HERE}.gaussians:MDS",
        "mds-ensemble": f"{_HERE}.layers:MDSEnsemble",
        "rmds": f"{_HERE}.gaussians:RMDS",
        "ssd": f"{_HERE}.gaussians:SSD",
        "gram": f"{_HERE}.gram:Gram",
        "gradnorm": f"{_HERE}.logits:GradNorm",
        "react": f"{_HERE}.shaping:ReAct",
        "dice": f"{_HERE}.shaping:DICE",
        "dice+react": f"{_HERE}.shaping:dice_react",
        "ash-p": f"{_HERE}.shaping:ASHP",
        "ash-s": f"{_HERE}.shaping:ASHS",
        "ash-b": f"{_HERE}.shaping:ASHB",
        "scale": f"{_HERE}.shaping:SCALE",
        "adascale": f"{_HERE}.adascale:AdaScale",
        "vra": f"{_HERE}.shaping:VRA",
        "vim": f"{_HERE}.subspaces:ViM",
        "residual": f"{_HERE}.subspaces:Residual",
        "knn": f"{_HERE}.neighbors:KNN",
        "she": f"{_HERE}.distances:SHE",
        "nnguide": f"{_HERE}.neighbors:NNGuide",
        "fdbd": f"{_HERE}.distances:FDBD",
        "nci": f"{_HERE}.distances:NCI",
        "relation": f"{_HERE}.neighbors:Relation",
        "rankfeat": f"{_HERE}.layers:RankFeat",
        "ddu": f"{_HERE}.gaussians:DDU",
        "opengan": f"{_HERE}.opengan:OpenGAN",
        "oodl": f"{_HERE}.oodl:OODL",
        "lard": f"{_HERE}.latent:LaRD",
        "safe": f"{_HERE}.safe:SAFE",
        "mc-dropout": f"{_HERE}.ensembles:MCDropout",
        "ensemble": f"{_HERE}.ensembles:Ensemble",
    },
)


def list_methods(pattern: str = "*") -> list[str]:
    """List the names of the methods.

    >>> list_methods("ash-*")
    ['ash-p', 'ash-s', 'ash-b']
    """
    return METHODS.names(pattern)


def load_method(name: str, **parameters: Any) -> Any:
    """Make a method from its name; `"react+knn"` reshapes the features first, then asks kNN.

    Parameters are those of the first method named.

    >>> load_method("react+knn", percentile=95).then.k
    50
    """
    from incognita.methods.naming import build

    return build(name, parameters)
