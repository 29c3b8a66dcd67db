"""Puts the results of the study beside table 1 of OpenOOD v1.5, as a Markdown table.

    python studies/cifar10/compare.py cifar10-runs/results          # of all images
    python studies/cifar10/compare.py cifar10-runs/results 1000     # of a run with --limit 1000

The paper's numbers are means over three networks with their standard deviation; ours are of one
network, with half of the 95 % bootstrap interval over images.
"""

import json
import sys
from pathlib import Path

# AUROC near and far on CIFAR-10, ResNet-18: Zhang et al., 2023, table 1
PAPER = {
    "openmax": ("87.62 ±0.29", "89.62 ±0.19"),
    "msp": ("88.03 ±0.25", "90.73 ±0.43"),
    "temperature": ("88.09 ±0.31", "90.97 ±0.52"),
    "odin": ("82.87 ±1.85", "87.96 ±0.61"),
    "mds": ("84.20 ±2.40", "89.72 ±1.36"),
    "mds-ensemble": ("60.43 ±0.26", "73.90 ±0.27"),
    "rmds": ("89.80 ±0.28", "92.20 ±0.21"),
    "gram": ("58.66 ±0.83", "71.73 ±0.20"),
    "energy": ("87.58 ±0.46", "91.21 ±0.92"),
    "opengan": ("53.71 ±0.68", "54.61 ±15.51"),
    "gradnorm": ("54.90 ±0.98", "57.55 ±2.22"),
    "react": ("87.11 ±0.61", "90.42 ±1.41"),
    "max-logit": ("87.52 ±0.47", "91.10 ±0.89"),
    "kl-matching": ("79.19 ±0.80", "82.68 ±0.21"),
    "vim": ("88.68 ±0.28", "93.48 ±0.24"),
    "knn": ("90.64 ±0.20", "92.96 ±0.14"),
    "dice": ("78.34 ±0.79", "84.23 ±1.89"),
    "rankfeat": ("79.46 ±2.52", "75.87 ±5.06"),
    "ash-b": ("75.27 ±1.04", "78.49 ±2.58"),
    "she": ("81.54 ±0.51", "85.32 ±1.43"),
}


def cell(record: dict, split: str) -> str:
    """One AUROC in percent with half of its interval."""
    found = next(r for r in record["results"] if (r["metric"], r["split"]) == ("auroc", split))
    half = 50 * (found["high"] - found["low"]) if found["high"] is not None else float("nan")
    return f"{100 * found['value']:.2f} ±{half:.2f}"


def chosen(record: dict) -> str:
    """The parameters a search chose."""
    points = [p for p in record["search"]["curve"] if p["auroc"] is not None]
    best = max(points, key=lambda point: point["auroc"])
    return ", ".join(f"{name} {value}" for name, value in best["parameters"].items())


def main() -> None:
    """Read every result of the study and print the table."""
    records = [json.loads(path.read_text()) for path in Path(sys.argv[1]).rglob("*.json")]
    limit = int(sys.argv[2]) if len(sys.argv) > 2 else None
    wanted = ("studies/cifar10", limit)
    records = [r for r in records if (r["identity"]["benchmark"], r["identity"]["limit"]) == wanted]
    defaults = {r["method"]: r for r in records if r["identity"]["choice"] == "given"}
    tuned = {r["method"]: r for r in records if r["identity"]["choice"] == "tuned"}
    print("| method | near: paper | ours | tuned | far: paper | ours | tuned | chosen |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    order = [name for name in PAPER if name in defaults]
    order += sorted(name for name in defaults if name not in PAPER)
    for name in order:
        paper = PAPER.get(name, ("", ""))
        row = [f"`{name}`"]
        for split, published in zip(("near", "far"), paper, strict=True):
            best = cell(tuned[name], split) if name in tuned else ""
            row += [published, cell(defaults[name], split), best]
        row.append(chosen(tuned[name]) if name in tuned else "")
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
