"""Results on disk: one JSON and one Parquet file per method; stored results are not recomputed."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incognita.errors import InvalidDataError
from incognita.files import file_hash, load_json, replacing, reporting_full_disk
from incognita.results.method_result import MethodResult, identity_hash

if TYPE_CHECKING:
    import polars

_SCORES_HASH = "scores_sha256"  # of the Parquet file that belongs to a JSON file


@dataclass(frozen=True)
class ResultStore:
    """A folder of results: `<benchmark>/<model>/<method>-<hash of the identity>.json`.

    The Parquet file beside each JSON holds one row per image of a classifier (set, group,
    image_id, label, predicted, unknown_score) or per box of a detector (also its corners,
    confidence, and whether it is called unknown). Every number of a classifier can be recomputed
    from it; those of a detector from the stored outputs, see `evaluation.verify`.
    """

    root: Path

    def path(self, identity: Mapping[str, Any]) -> Path:
        """Return the path of the result with this identity."""
        name = f"{plain_name(identity['method'])}-{identity_hash(identity)}.json"
        return self.folder(identity) / name

    def folder(self, identity: Mapping[str, Any]) -> Path:
        """Return the folder of the results of a benchmark and a model."""
        model = f"{plain_name(identity['model'])}-{identity['weights'][:8]}"
        return self.root / plain_name(identity["benchmark"]) / model

    def find(self, identity: Mapping[str, Any]) -> tuple[MethodResult, "polars.DataFrame"] | None:
        """Return a result and its scores, or None unless both are stored and intact."""
        import polars

        path = self.path(identity)
        scores = path.with_suffix(".parquet")
        if not path.is_file() or not scores.is_file():
            return None
        try:
            record = load_json(path)
            # a damaged table ends the whole process inside polars, so its content is checked first
            if not isinstance(record, dict) or record.get(_SCORES_HASH) != file_hash(scores):
                return None
            result = MethodResult.from_json(record)
            # eight digits of a hash may collide
            is_same = result.identity == json.loads(json.dumps(dict(identity)))
            return (result, polars.read_parquet(scores)) if is_same else None
        except (InvalidDataError, OSError, polars.exceptions.PolarsError, RecursionError):
            return None  # truncated by a crash: computed and written again

    def save(self, result: MethodResult, scores: "polars.DataFrame") -> Path:
        """Save a result; the scores first, so that no JSON file is without them."""
        path = self.path(result.identity)
        with reporting_full_disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path.with_suffix(".parquet")) as unfinished:
            scores.write_parquet(unfinished)
        record = result.as_json() | {_SCORES_HASH: file_hash(path.with_suffix(".parquet"))}
        with replacing(path) as unfinished:
            unfinished.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
        return path


def stated_hash(record: Any) -> str | None:
    """Return the hash of the scores that the JSON of a result states."""
    return record.get(_SCORES_HASH) if isinstance(record, dict) else None


def load_scores(path: Path) -> "polars.DataFrame":
    """Load a Parquet file of a run; a damaged one raises one sentence, whatever polars does."""
    import polars

    try:
        return polars.read_parquet(path)
    # damage may end in a panic of polars, which is no Exception
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise InvalidDataError(f"{path} cannot be read. Run the benchmark again.") from error


def plain_name(name: str) -> str:
    """Return a name that is safe for a file: `openood/cifar10` becomes `openood-cifar10`."""
    return re.sub(r"[^A-Za-z0-9._+@-]+", "-", name).strip("-.") or "unnamed"
