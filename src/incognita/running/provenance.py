"""By what, when and how a result was made, for its readers."""

import sys
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from incognita import __version__


def provenance_of_now() -> dict[str, Any]:
    """Give versions, the command and the time."""
    return {
        "incognita": __version__,
        "torch": version("torch"),
        "numpy": version("numpy"),
        "command": " ".join(sys.argv),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
