"""The parts of Terra's renderer against definitions that share no code with them."""

import math

import numpy as np
import pytest

from incognita.benchmarks.terra.rendering import OUTLINES, pack_outlines
from incognita.kernels.terra.random import (
    bell,
    draw,
    hashed,
    start_stream,
    turned,
    uniform,
    whole,
)
from incognita.kernels.terra.shapes import outline_distance


def slow_part_distance(part, x, y):
    """Sample the edges densely; the inside is where the edges turn once around the point."""
    points = [complex(*point) for point in part.points]
    here = complex(x, y)
    ends = points[1:] + points[:1] if part.is_filled else points[1:]
    shares = np.linspace(0, 1, 2001)
    edges = [a + (b - a) * shares for a, b in zip(points, ends, strict=False)] or [np.array(points)]
    nearest = min(np.abs(edge - here).min() for edge in edges)
    turns = sum(
        np.angle((b - here) / (a - here)) for a, b in zip(points, ends, strict=False) if a != b
    )
    is_inside = part.is_filled and abs(turns) > math.pi
    return (-nearest if is_inside else nearest) - part.radius


def slow_distance(parts, x, y):
    distance = math.inf
    for part in parts:
        d = slow_part_distance(part, x, y)
        distance = max(distance, -d) if part.is_cut else min(distance, d)
    return distance


@pytest.mark.parametrize("name", ["square", "ring", "zed", "five-star", "gear", "cup", "tulip"])
def test_distance_to_an_outline_equals_its_slow_definition(name):
    outlines = pack_outlines([name])
    rng = np.random.default_rng(0)
    for x, y in rng.uniform(-1.2, 1.2, size=(40, 2)):
        expected = slow_distance(OUTLINES[name], x, y)
        assert outline_distance(outlines, 0, x, y) == pytest.approx(expected, abs=2e-3)


def test_every_outline_lies_within_the_reach_of_its_painter():
    outlines = pack_outlines(list(OUTLINES))
    for k, name in enumerate(OUTLINES):
        rim = [(1.3 * math.cos(t), 1.3 * math.sin(t)) for t in np.linspace(0, 2 * math.pi, 90)]
        assert min(outline_distance(outlines, k, x, y) for x, y in rim) > 0, name


def test_random_bits_are_those_of_splitmix64():
    stream = np.zeros(1, np.uint64)
    # the first numbers of the published generator started at 0
    assert [int(draw(stream)) for _ in range(2)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_random_numbers_have_the_distribution_they_promise():
    stream = start_stream(np.uint64(3), 5)
    bells = np.array([bell(stream) for _ in range(20_000)])
    assert abs(bells.mean()) < 0.03
    assert bells.std() == pytest.approx(1, abs=0.03)
    uniforms = np.array([uniform(stream, 2.0, 4.0) for _ in range(20_000)])
    assert 2 <= uniforms.min() < 2.01
    assert 3.99 < uniforms.max() < 4
    assert np.bincount([whole(stream, 0, 5) for _ in range(20_000)], minlength=5).min() > 3700


def test_streams_of_neighbors_are_unrelated():
    starts = np.array([uniform(start_stream(np.uint64(1), k), 0.0, 1.0) for k in range(4000)])
    assert abs(np.corrcoef(starts[:-1], starts[1:])[0, 1]) < 0.05
    places = np.array([[hashed(np.uint64(1), i, j) for i in range(60)] for j in range(-30, 30)])
    assert abs(np.corrcoef(places[:-1].ravel(), places[1:].ravel())[0, 1]) < 0.05
    assert abs(np.corrcoef(places[:, :-1].ravel(), places[:, 1:].ravel())[0, 1]) < 0.05


def test_a_turn_equals_cosine_and_sine():
    for share in np.linspace(0, 1, 97, endpoint=False):
        expected = math.cos(2 * math.pi * share), math.sin(2 * math.pi * share)
        assert turned(share) == pytest.approx(expected, abs=5e-6)
