"""Builders: which images of others are known, near or far, as lists, annotations and benchmarks."""

from typing import TYPE_CHECKING

from incognita.registry import attach

if TYPE_CHECKING:
    from incognita.benchmarks.splits.facets import FacetsFolders as FacetsFolders
    from incognita.benchmarks.splits.facets import FacetsSettings as FacetsSettings
    from incognita.benchmarks.splits.facets import build_facets as build_facets
    from incognita.benchmarks.splits.facets import save_facets as save_facets
    from incognita.benchmarks.splits.openimages_sets import build_openimages as build_openimages
    from incognita.benchmarks.splits.saod import SaodSources as SaodSources
    from incognita.benchmarks.splits.saod import build_saod as build_saod
    from incognita.benchmarks.splits.saod import save_saod as save_saod

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".facets": ["FacetsFolders", "FacetsSettings", "build_facets", "save_facets"],
        ".openimages_sets": ["build_openimages"],
        ".saod": ["SaodSources", "build_saod", "save_saod"],
    },
)
