"""From a model and a benchmark to the ranking of methods: one pass, then arithmetic."""

from collections.abc import Callable, Sequence
from pathlib import Path

from incognita.benchmarks.benchmark import Benchmark
from incognita.benchmarks.loading import load_benchmark
from incognita.errors import InvalidDataError
from incognita.extraction.output_store import OutputStore
from incognita.extraction.records import Settings
from incognita.results.result_store import ResultStore
from incognita.running.asked_methods import Methods, ask
from incognita.running.assessment import Assessment, Options
from incognita.running.evaluation import Evaluation
from incognita.running.networks import OneModel, networks_of, offer_of
from incognita.running.parts import check_parts
from incognita.running.passes import Passes, Progress


def evaluate(
    model: OneModel | Sequence[OneModel] | None = None,
    benchmark: str | Path | Benchmark = "terra/standard",
    methods: Methods = "all",
    *,
    weights: str | Path | None = None,
    data: str | Path | None = None,
    search: bool = False,
    limit: int | None = None,
    seed: int = 0,
    n_resamples: int = 200,
    settings: Settings | None = None,
    store: str | Path | None = None,
    out: str | Path | None = None,
    on_progress: Progress | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Evaluation:
    """Rank methods on a benchmark: every image goes through the network once for all of them.

    Args:
        model: A module, an adapter, or what `--model` takes; several for an ensemble; None for
            the model that an embedded benchmark brings along.
        benchmark: The name of one of ours, or a TOML file of your own.
        methods: `all`, names such as `"msp, react+knn, knn(k=10)"`, or methods.
        weights: A file with weights for a model that is given by its name.
        data: The folder that holds the images of the benchmark.
        search: Also choose parameters on validation data, and report both.
        limit: At most so many images of each set, for a quick look.
        seed: Of the bootstrap and of what `limit` draws.
        n_resamples: Bootstrap replicates behind each interval; zero for none.
        settings: Batch size, precision, device, workers.
        store: A folder for outputs, so that an interrupted run goes on where it was.
        out: A folder for results; methods that are there already are not run again.
        on_progress: Called with a data set's name, images done, images in all.
        on_step: Called with what is being done, for a progress line.
    """
    options = Options(search, limit, seed, n_resamples)
    if not isinstance(benchmark, Benchmark):
        benchmark = load_benchmark(benchmark, data=data, limit=limit, seed=seed)
    elif limit is not None or data is not None:
        raise InvalidDataError(
            "limit and data go with the name of a benchmark, but one that is loaded came; give "
            "them to load_benchmark, or take a subset of its sets."
        )
    networks = networks_of(model, benchmark, None if weights is None else Path(weights))
    asked = ask(methods, offer_of(networks, benchmark))
    check_parts(benchmark, searching=search)
    passes = Passes(
        networks,
        settings or Settings(),
        None if store is None else OutputStore(Path(store)),
        on_progress,
    )
    results = None if out is None else ResultStore(Path(out))
    return Assessment(benchmark, asked, options, passes, results).run(on_step)
