"""The one pass: the only folder that runs a model over images."""

from typing import TYPE_CHECKING

from incognita.registry import attach

if TYPE_CHECKING:
    from incognita.extraction.extract import Extracted as Extracted
    from incognita.extraction.extract import detect as detect
    from incognita.extraction.settings import Settings as Settings
    from incognita.extraction.store import OutputStore as OutputStore

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".extract": ["Extracted", "detect"],
        ".settings": ["Settings"],
        ".store": ["OutputStore"],
    },
)
