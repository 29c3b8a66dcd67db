"""SAFE: training is random, so what can be checked is the network, what it is fed, and its use."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from incognita.containers.outputs import ClassifierOutputs
from incognita.errors import InvalidDataError
from incognita.extraction.extra_outputs import PerturbedLayers
from incognita.methods.contract import Toy, as_boxes, with_extra_outputs
from incognita.methods.safe import SAFE, _split
from incognita.metrics import ranking_metrics

LAYERS = ("shortcut/1", "shortcut/2")


def boxes(n, seed, unknown=False):
    return as_boxes(Toy().outputs(n, seed=seed, unknown=unknown))


@pytest.fixture(scope="module")
def known():
    outputs = with_extra_outputs(boxes(400, seed=1), SAFE().extra_outputs_to_fit("known"))
    return replace(outputs, image_ids=tuple(f"image{k // 4}#{k % 4}" for k in range(400)))


@pytest.fixture(scope="module")
def unknown():
    return boxes(100, seed=3, unknown=True)


@pytest.fixture(scope="module")
def fitted(known):
    return SAFE().fit(known)


def side_by_side(outputs, prefix=""):
    columns = outputs.layers if not prefix else outputs.extra_outputs
    return np.concatenate([columns[prefix + name].double().numpy() for name in LAYERS], axis=1)


def perturbed(outputs):
    return side_by_side(outputs, f"{PerturbedLayers().key}/")


def standardized(known, rows):
    both = np.concatenate([side_by_side(known), perturbed(known)])
    return (rows - both.mean(axis=0)) / both.std(axis=0)


def network_by_hand(method, rows):
    """Three layers with rectified units between them, one row at a time."""
    weights = {name: t.double().numpy() for name, t in method.network_.items()}
    found = []
    for row in rows:
        first = np.maximum(weights["0.weight"] @ row + weights["0.bias"], 0)
        second = np.maximum(weights["1.weight"] @ first + weights["1.bias"], 0)
        found.append((weights["2.weight"] @ second + weights["2.bias"])[0])
    return np.array(found)


def test_the_score_is_the_output_of_the_kept_network(fitted, known, unknown):
    expected = network_by_hand(fitted, standardized(known, side_by_side(unknown)))
    np.testing.assert_allclose(fitted.score(unknown), expected, rtol=1e-9)


def test_the_loss_is_that_of_boxes_of_held_out_images(fitted, known):
    rng = torch.Generator().manual_seed(0)
    drawn = torch.randperm(400, generator=rng).sort().values
    _, held_out = _split(known.image_ids, drawn, rng)
    assert len(held_out) == 80
    clean, moved = (
        network_by_hand(fitted, standardized(known, rows[held_out.numpy()]))
        for rows in (side_by_side(known), perturbed(known))
    )
    expected = np.log1p(np.exp(clean)).mean() + np.log1p(np.exp(-moved)).mean()
    assert fitted.held_out_loss_ == pytest.approx(expected, rel=1e-5)


def test_the_epoch_of_the_lowest_held_out_loss_is_kept(known, unknown):
    # a rate at which the loss goes up and down
    methods = [SAFE(epochs=n, learning_rate=0.3).fit(known) for n in range(1, 7)]
    losses = [method.held_out_loss_ for method in methods]
    assert losses == sorted(losses, reverse=True)
    assert methods[-1].epoch_ < 6
    best = methods[methods[-1].epoch_ - 1]
    assert best.epoch_ == methods[-1].epoch_
    assert torch.equal(best.score(unknown), methods[-1].score(unknown))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_unknown_and_perturbed_boxes_are_found(seed, known, unknown):
    method = SAFE(seed=seed).fit(known)
    others = boxes(100, seed=2)
    extra_outputs = with_extra_outputs(others, method.extra_outputs_to_fit("known")).extra_outputs
    moved = {name: extra_outputs[f"{PerturbedLayers().key}/{name}"] for name in LAYERS}
    of_known = method.score(others)
    for found in (method.score(unknown), method.score(replace(others, layers=moved))):
        scores, is_unknown = torch.cat([of_known, found]).numpy(), np.arange(200) >= 100
        assert ranking_metrics(scores, is_unknown).auroc > 0.95


def test_it_is_no_linear_network():
    """Clean boxes in the middle, perturbed ones around: no plane parts them."""
    rng = torch.Generator().manual_seed(0)
    clean = torch.randn(600, 2, generator=rng)
    around = 4 * torch.nn.functional.normalize(torch.randn(600, 2, generator=rng))
    extra = PerturbedLayers()
    known = ClassifierOutputs(
        tuple(range(600)),
        torch.zeros(600, 2),
        layers={"shortcut/1": clean},
        extra_outputs={f"{extra.key}/shortcut/1": around},
    )
    method = SAFE(epochs=40).fit(known)
    scores = [method.score(replace(known, layers={"shortcut/1": t})) for t in (clean, around)]
    is_unknown = np.arange(1200) >= 600
    assert ranking_metrics(torch.cat(scores).numpy(), is_unknown).auroc > 0.95


def test_only_fitting_needs_the_perturbed_copies(fitted, known, unknown):
    assert fitted.extra_outputs() == ()
    assert fitted.extra_outputs_to_fit("known") == (PerturbedLayers(8 / 255),)
    assert fitted.extra_outputs_to_fit("validation") == ()
    assert SAFE(epsilon=1).extra_outputs_to_fit("known") == (PerturbedLayers(1.0),)
    with pytest.raises(InvalidDataError, match=r"epsilon=1.0\)/shortcut/1; extract them with"):
        SAFE(epsilon=1).fit(known)
    with pytest.raises(InvalidDataError, match="perturbed copies of known boxes"):
        SAFE().fit(unknown)


def test_other_layers_are_not_looked_at(fitted, known, unknown):
    def without(outputs):
        kept = {name: table for name, table in outputs.layers.items() if name in LAYERS}
        return replace(outputs, layers=kept)

    other = SAFE().fit(without(known))
    assert torch.equal(other.score(without(unknown)), fitted.score(unknown))
    one = replace(unknown, layers={"shortcut/1": unknown.layers["shortcut/1"]})
    with pytest.raises(InvalidDataError, match="SAFE uses the layer 'shortcut/2'"):
        fitted.score(one)
    with pytest.raises(InvalidDataError, match="needs shortcut layers pooled over boxes"):
        SAFE().fit(replace(known, layers={"latent/rpn": torch.zeros(400, 3)}))


def test_boxes_of_an_image_stay_together():
    row_ids = [f"image{k // 7}#{k % 7}" for k in range(210)]
    drawn = torch.arange(210)[::2]
    training, held_out = _split(row_ids, drawn, torch.Generator().manual_seed(3))
    assert sorted(training.tolist() + held_out.tolist()) == drawn.tolist()
    parts = [{k // 7 for k in part.tolist()} for part in (training, held_out)]
    assert [len(part) for part in parts] == [24, 6]
    assert not parts[0] & parts[1]


def test_rows_without_a_box_number_are_images_of_their_own():
    training, held_out = _split(range(10), torch.arange(10), torch.Generator())
    assert (len(training), len(held_out)) == (8, 2)


def test_the_seed_decides_and_the_global_one_is_left_alone(fitted, known, unknown):
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    assert torch.equal(SAFE().fit(known).score(unknown), fitted.score(unknown))
    assert torch.equal(torch.random.get_rng_state(), before)
    others = (SAFE(seed=1), SAFE(width=32), SAFE(learning_rate=1e-4), SAFE(epochs=1), SAFE(rows=99))
    for other in others:
        assert not torch.allclose(other.fit(known).score(unknown), fitted.score(unknown))


def test_it_can_be_fitted_where_gradients_are_switched_off(fitted, known, unknown):
    with torch.no_grad():
        quiet = SAFE().fit(known)
    with torch.inference_mode():
        inferred = SAFE().fit(known)
    for other in (quiet, inferred):
        assert torch.equal(other.score(unknown), fitted.score(unknown))
    assert not any(t.requires_grad for t in inferred.network_.values())


def test_the_number_of_threads_does_not_matter(fitted, known, unknown):
    n_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        other = SAFE().fit(known)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(n_threads)
    assert torch.equal(other.score(unknown), fitted.score(unknown))


def test_channels_that_do_not_vary_do_not_blow_up(known, unknown):
    """One channel is always 0.1, and nearly so where it is unknown."""

    def with_dead_channel(outputs, value):
        columns = {}
        for group in ("layers", "extra_outputs"):
            columns[group] = {
                name: torch.cat([t, torch.full((len(t), 1), value)], dim=1)
                for name, t in (getattr(outputs, group) or {}).items()
            }
        return replace(outputs, **columns)

    method = SAFE().fit(with_dead_channel(known, 0.1))
    score = [method.score(with_dead_channel(unknown, value)) for value in (0.1, 0.101)]
    torch.testing.assert_close(*score, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("n", [1, 3])
def test_few_rows_stay_finite(n, known, unknown):
    few = known[torch.arange(400) < n]
    assert SAFE(epochs=2).fit(few).score(unknown).isfinite().all()


def test_rows_do_not_depend_on_each_other(fitted, unknown):
    keep = torch.arange(100) % 3 == 0
    alone, together = fitted.score(unknown[keep]), fitted.score(unknown)[keep]
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["epsilon", "epochs", "width", "learning_rate", "rows"])
def test_nonsense_is_refused(name):
    with pytest.raises(InvalidDataError, match=f"{name} above 0, but got 0"):
        SAFE(**{name: 0})


@pytest.mark.parametrize(("offset", "scale"), [(0.0, 1.0), (1e4, 1.0), (-3e-5, 1e-7)])
def test_a_wide_first_layer_stays_in_float32_and_near_the_kept_network(offset, scale):
    """Rows far from zero lose no digits: the mean is taken off before they are multiplied."""
    rng = torch.Generator().manual_seed(0)
    clean = offset + scale * torch.randn(300, 2100, generator=rng)
    known = ClassifierOutputs(
        tuple(range(300)),
        torch.zeros(300, 2),
        layers={"shortcut/1": clean[:, :800], "shortcut/2": clean[:, 800:]},
        extra_outputs={
            f"{PerturbedLayers().key}/shortcut/1": clean[:, :800] + 2 * scale,
            f"{PerturbedLayers().key}/shortcut/2": clean[:, 800:] * 1.0,
        },
    )
    method = SAFE(epochs=2).fit(known)
    expected = network_by_hand(method, standardized(known, side_by_side(known)))
    error = np.abs(method.score(known).numpy() - expected)
    assert error.max() < 1e-6 * np.abs(expected).max()
