"""Loops compiled by numba, on arrays their callers have checked."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _find_place_for_cache() -> None:
    """Set a cache folder for numba where its defaults are not writable and it would not start.

    The defaults are the folder of the source and one in the home directory; in many containers
    both are read-only. The folder belongs to the user: compiled code of others must not be run.
    """
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is none
    places = (Path(__file__).parent, home / ".cache", home)
    if "NUMBA_CACHE_DIR" in os.environ or "numba" in sys.modules:
        return
    if any(place.is_dir() and os.access(place, os.W_OK) for place in places):
        return
    folder = Path(tempfile.gettempdir()) / f"incognita-kernels-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        is_own = folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o077
    except OSError:
        is_own = False
    os.environ["NUMBA_CACHE_DIR"] = str(folder) if is_own else tempfile.mkdtemp()


def on_first_compilation(announce: Callable[[], object]) -> None:
    """Call a function when numba begins to compile, not where it loads stored code."""
    from numba.core import event

    class Once(event.Listener):
        def on_start(self, event: Any) -> None:
            if not announced:
                announced.append(True)
                announce()

        def on_end(self, event: Any) -> None:
            pass

    announced: list[bool] = []
    event.register("numba:compile", Once())  # type: ignore[no-untyped-call]


_find_place_for_cache()
