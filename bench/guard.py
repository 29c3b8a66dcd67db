"""`Guard.check` of the outputs of one image, in milliseconds."""

import torch

from bench.harness import Row, Run, at_most, compare, measure
from bench.toy_outputs import outputs
from incognita.decisions.guard import Guard
from incognita.methods import load_method

N_CLASSES, D, N_KNOWN, N_CALLS = 100, 512, 50_000, 200
BARS = {"energy": 0.1, "react": 0.1, "msp": None, "ash-s": None, "mds": 0.5, "rmds": None}
MOST_OF_PRODUCT = 1.5  # times of one product of the bank with a vector


def rows() -> list[Row]:
    torch.set_num_threads(1)
    known = outputs(N_KNOWN, N_CLASSES, D, seed=1)
    held_out, one = (outputs(n, N_CLASSES, D, seed=seed) for n, seed in ((1000, 2), (1, 3)))
    part = f"one image, {N_CLASSES} classes, d {D}"
    found = []
    for name, limit in BARS.items():
        guard = Guard.fit(load_method(name).fit(known), held_out)
        cost = measure({name: repeated(lambda guard=guard: guard.check(one))})[name]
        found.append(in_milliseconds(part, name, cost.seconds / N_CALLS, limit))
    return [*found, *neighbors(known, held_out, one)]


def neighbors(known: object, held_out: object, one: object) -> list[Row]:
    """Compare kNN with the product of its bank and one vector, which it cannot do without."""
    guard, vector = Guard.fit(load_method("knn").fit(known), held_out), one.features[0]
    cases: dict[str, Run | None] = {
        "product of bank and vector": lambda: known.features @ vector,
        "knn": lambda: guard.check(one),
    }
    part = f"one image, bank of {N_KNOWN:,} x {D}"
    bars = {"knn": at_most(MOST_OF_PRODUCT)}
    costs = measure(cases, rounds=30)
    return compare(part, cases, costs, ours="product of bank and vector", bars=bars)


def in_milliseconds(part: str, case: str, seconds: float, limit: float | None) -> Row:
    if limit is None:
        return Row(part, case, seconds, 1e3 * seconds, "ms")
    bar = at_most(limit)
    return Row(part, case, seconds, 1e3 * seconds, "ms", None, str(bar), bar.is_met(1e3 * seconds))


def repeated(run: Run) -> Run:
    """Call often enough for the processor's clock."""

    def calls() -> None:
        for _ in range(N_CALLS):
            run()

    return calls
