"""How long a command takes before it works: whole processes, wall clock, second call on."""

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.harness import Row, at_most, timed

ROUNDS = 7
TRUTH = {
    "images": [{"id": 1}, {"id": 2}],
    "categories": [{"id": 1, "name": "car"}, {"id": 2, "name": "unknown"}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 10, 10]},
        {"id": 2, "image_id": 2, "category_id": 2, "bbox": [0, 0, 10, 10]},
    ],
}
RESULTS = [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 10, 9], "score": 0.9}]


def rows() -> list[Row]:
    with TemporaryDirectory() as folder:
        truth, results = Path(folder, "truth.json"), Path(folder, "results.json")
        truth.write_text(json.dumps(TRUTH))
        results.write_text(json.dumps(RESULTS))
        certify = ["certify", "--truth", str(truth), "--detections", str(results)]
        program = [sys.executable, "-m", "incognita.cli"]
        return [
            timed("process", "incognita --help", best([*program, "--help"]), at_most(0.3)),
            timed(
                "process", "incognita certify, tiny file", best([*program, *certify]), at_most(1.0)
            ),
            timed(
                "process",
                "import incognita.metrics",
                best(python("import incognita.metrics")),
                None,
            ),
            timed("process", "import numpy, numba", best(python("import numpy, numba")), None),
            timed("process", "python alone", best(python("pass")), None),
        ]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def best(command: list[str]) -> float:
    """Run once to warm the caches, then give the shortest wall time of several runs."""
    subprocess.run(command, check=True, capture_output=True)
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return min(seconds)
