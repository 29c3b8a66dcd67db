"""Kinds of data sets: each is one file with its entry in a benchmark's TOML and its loader.

To add a kind, write a subclass of `SetEntry` in a module and name it in `KINDS`.
"""

from importlib import import_module
from typing import Any

# imported when a definition names the kind: planning waits for no compiler
KINDS = {
    "imglist": "incognita.benchmarks.sources.imglist:ImglistSet",
    "folder": "incognita.benchmarks.sources.folder:FolderSet",
    "terra": "incognita.benchmarks.sources.terra:TerraSet",
    "digits": "incognita.benchmarks.sources.digits:DigitsSet",
    "coco": "incognita.benchmarks.sources.coco:CocoSet",
    "terra-scenes": "incognita.benchmarks.sources.terra:TerraScenesSet",
}


def entry_class(kind: str) -> type[Any]:
    """Return the class of the entries of a kind."""
    module, _, name = KINDS[kind].partition(":")
    found: type[Any] = getattr(import_module(module), name)
    return found
