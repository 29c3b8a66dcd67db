"""The k-th nearest neighbor against faiss and scikit-learn, and relations to a bank."""

import numpy as np
import torch

from bench.harness import Row, Run, at_least, compare, measure, peer
from bench.toy_outputs import outputs
from incognita.containers.outputs import ClassifierOutputs
from incognita.methods import load_method

K = 50
SIZES = ((50_000, 10_000, 512), (50_000, 200, 512))


def rows() -> list[Row]:
    torch.set_num_threads(1)
    return [*(row for n_bank, n, d in SIZES for row in compare_at(n_bank, n, d)), *relation()]


def compare_at(n_bank: int, n: int, d: int) -> list[Row]:
    known, test = outputs(n_bank, 100, d, seed=1), outputs(n, 100, d, seed=2)
    bank, queries = unit(known), unit(test)
    ours = load_method("knn", k=K).fit(known)
    check(ours.score(test).numpy(), queries, bank)
    cases: dict[str, Run | None] = {
        "incognita": lambda: ours.score(test),
        "faiss, one call": peer("faiss", lambda: faiss_search(bank, queries, n)),
        "faiss, batches of 200": peer("faiss", lambda: faiss_search(bank, queries, 200))
        if n <= 2000
        else None,
        "scikit-learn": sklearn_search(bank, queries) if n <= 2000 else None,
        "limit: float32 matmul": lambda: matmul(bank, queries),
    }
    cases = {name: run for name, run in cases.items() if run is not None or "faiss, one" in name}
    bars = {"faiss, one call": at_least(1 / 1.15)}
    part = f"{n_bank} x {d}, {n} queries, k {K}"
    return compare(part, cases, measure(cases, rounds=3), ours="incognita", bars=bars)


def relation() -> list[Row]:
    known, test = outputs(20_000, 100, 512, seed=1), outputs(1000, 100, 512, seed=2)
    ours = load_method("relation").fit(known)
    bank, queries = torch.from_numpy(unit(known)), torch.from_numpy(unit(test))
    shares, bank_shares = (part.logits.softmax(dim=1) for part in (test, known))
    cases: dict[str, Run | None] = {
        "incognita": lambda: ours.score(test),
        "limit: its two matmuls": lambda: (queries @ bank.T, shares @ bank_shares.T),
    }
    part = "Relation, bank 20000 x 512, 1000 rows"
    return compare(part, cases, measure(cases), ours="incognita", bars={})


def unit(part: ClassifierOutputs) -> np.ndarray:
    return torch.nn.functional.normalize(part.features, dim=1).numpy()


def check(distance: np.ndarray, queries: np.ndarray, bank: np.ndarray) -> None:
    """Stop where the distance is not that of the definition."""
    products = np.sort(queries[:50].astype(np.float64) @ bank.T.astype(np.float64), axis=1)
    expected = np.sqrt(np.maximum(0, 2 - 2 * products[:, -K]))
    if np.abs(distance[:50] - expected).max() > 1e-5:
        raise SystemExit("incognita's k-th neighbor is not the k-th neighbor.")


def faiss_search(bank: np.ndarray, queries: np.ndarray, batch: int) -> Run:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatL2(bank.shape[1])
    index.add(bank)
    return lambda: [
        index.search(queries[first : first + batch], K) for first in range(0, len(queries), batch)
    ]


def sklearn_search(bank: np.ndarray, queries: np.ndarray) -> Run:
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=K, algorithm="brute", n_jobs=1).fit(bank)
    return lambda: index.kneighbors(queries)


def matmul(bank: np.ndarray, queries: np.ndarray) -> None:
    rows, columns = torch.from_numpy(queries), torch.from_numpy(bank)
    for first in range(0, len(rows), 256):
        for start in range(0, len(columns), 4096):
            rows[first : first + 256] @ columns[start : start + 4096].T
