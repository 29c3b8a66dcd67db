"""Corruptions: what `imagecorruptions` does, but the same for the same id everywhere."""

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import norm, poisson

from incognita.benchmarks.corruptions import (
    KINDS,
    LISTS,
    corrupt,
    draw_kind,
    family_of,
    kinds_of,
    noise,
    spread_evenly,
    weather,
)
from incognita.benchmarks.corruptions.draws import Draws
from incognita.errors import InvalidDataError, UnknownNameError

DETERMINISTIC = (
    "defocus_blur", "zoom_blur", "gaussian_blur", "brightness", "contrast", "pixelate",
    "jpeg_compression", "saturate",
)  # fmt: skip
RANDOM = tuple(kind for kind in KINDS.homes if kind not in DETERMINISTIC)
SEVERITIES = (1, 2, 3, 4, 5)
# draws per image: means of fog differ most between draws, and frost has six looks
N_DRAWS = {"fog": 45, "frost": 36, "spatter": 6, "motion_blur": 6, "snow": 8}


def scene(seed: int, height: int, width: int) -> np.ndarray:
    """A picture with smooth areas, edges, gray, black, white and pure colors."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (4, 5, 3), np.uint8)
    image = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    for color in ((0, 0, 0), (255, 255, 255), (128, 128, 128), (255, 0, 0), (0, 90, 255)):
        x, y = int(rng.integers(width)), int(rng.integers(height))
        cv2.circle(image, (x, y), int(rng.integers(3, 14)), color, -1)
    grain = rng.integers(-12, 13, image.shape)
    return np.clip(image.astype(int) + grain, 0, 255).astype(np.uint8)


def real_images(data_dir) -> list[np.ndarray]:
    with zipfile.ZipFile(data_dir / "detection" / "coco" / "val2017_subset.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))[:20]
        return [
            np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB")) for name in names
        ]


@pytest.fixture(params=["generated", pytest.param("real", marks=pytest.mark.data)])
def pictures(request) -> list[np.ndarray]:
    """Pictures at their own size: 120 x 160 of the middle of real ones."""
    if request.param == "generated":
        return [
            scene(k, *size) for k, size in enumerate([(75, 120), (121, 64), (32, 32), (50, 51)])
        ]
    whole = real_images(request.getfixturevalue("data_dir"))
    return [np.ascontiguousarray(image[50:170, 40:200]) for image in whole]


@pytest.fixture(params=["generated", pytest.param("real", marks=pytest.mark.data)])
def small_pictures(request) -> list[np.ndarray]:
    """Twenty pictures of 48 x 64, of which many draws are cheap."""
    if request.param == "generated":
        return [scene(k, 48, 64) for k in range(20)]
    whole = real_images(request.getfixturevalue("data_dir"))
    return [cv2.resize(image, (64, 48), interpolation=cv2.INTER_AREA) for image in whole]


@pytest.fixture
def peer(monkeypatch):
    module = pytest.importorskip("imagecorruptions")
    photographs: dict[object, np.ndarray] = {}
    read, resize = cv2.imread, cv2.resize
    enlarged: dict[tuple[int, ...], np.ndarray] = {}

    def read_once(path):
        if path not in photographs:
            photographs[path] = read(path)
        return photographs[path]

    def resize_once(image, *arguments, **options):
        if not any(image is photograph for photograph in photographs.values()):
            return resize(image, *arguments, **options)
        key = (id(image), *options["dsize"])
        if key not in enlarged:
            enlarged[key] = resize(image, *arguments, **options)
        return enlarged[key]

    monkeypatch.setattr("cv2.resize", resize_once)
    monkeypatch.setattr("cv2.imread", read_once)
    state = np.random.get_state()  # noqa: NPY002 - the peer's
    yield lambda image, kind, severity: module.corrupt(
        image, severity=severity, corruption_name=kind
    )
    np.random.set_state(state)  # noqa: NPY002 - the peer's


@pytest.mark.parametrize("kind", DETERMINISTIC)
def test_deterministic_kinds_are_within_one_level_of_the_peer(kind, pictures, peer):
    for severity in SEVERITIES:
        for image in pictures:
            ours = corrupt(image, kind, severity, image_id="a").astype(int)
            theirs = peer(image, kind, severity).astype(int)
            assert np.abs(ours - theirs).max() <= 1, severity
            assert abs((ours - theirs).mean()) < 0.5, severity


def looks_in_turn(kind: str, severity: int, n: int) -> tuple[list[str], list[int]]:
    """Ids of ours and seeds of the peer's; of frost, such that the six looks take turns."""
    if kind != "frost":
        return [f"picture {k}" for k in range(n)], list(range(n))
    ids: dict[int, list[str]] = {look: [] for look in range(6)}
    seeds: dict[int, list[int]] = {look: [] for look in range(6)}
    for k in range(12 * n):
        ids[Draws(0, f"picture {k}", kind, severity).index("look", 6)].append(f"picture {k}")
        seeds[np.random.RandomState(k).randint(6)].append(k)
    return [ids[k % 6][k // 6] for k in range(n)], [seeds[k % 6][k // 6] for k in range(n)]


def statistics(corrupted: list[np.ndarray], clean: list[np.ndarray]) -> np.ndarray:
    """Mean and standard deviation in levels, and PSNR in decibels."""
    errors = [np.mean((a.astype(float) - b) ** 2) for a, b in zip(corrupted, clean, strict=True)]
    mean = np.mean([image.mean() for image in corrupted])
    std = np.mean([image.std() for image in corrupted])
    return np.array([mean, std, 10 * np.log10(255**2 / np.mean(errors))])


@pytest.mark.parametrize("kind", RANDOM)
def test_random_kinds_have_the_statistics_of_the_peer(kind, small_pictures, peer):
    clean = [image for image in small_pictures for _ in range(N_DRAWS.get(kind, 2))]
    for severity in SEVERITIES:
        ids, seeds = looks_in_turn(kind, severity, len(clean))
        ours, theirs = [], []
        for image, image_id, seed in zip(clean, ids, seeds, strict=True):
            ours.append(corrupt(image, kind, severity, image_id=image_id))
            np.random.seed(seed)  # noqa: NPY002 - the peer has no other
            theirs.append(peer(image, kind, severity))
        difference = np.abs(statistics(ours, clean) - statistics(theirs, clean))
        assert (difference <= [2, 2, 1]).all(), (severity, difference)


@pytest.mark.parametrize("kind", ["gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"])
@pytest.mark.parametrize("level", [0, 1, 77, 254, 255])
def test_noise_of_one_level_has_the_distribution_of_its_definition(kind, level):
    image = np.full((400, 500, 3), level, np.uint8)
    x, levels = level / 255, np.arange(256) / 255
    upper = {  # P(value <= levels), of what is cut to whole levels: P(value < levels + 1)
        "gaussian_noise": norm.cdf((levels + 1 / 255 - x) / 0.18),
        "shot_noise": poisson.cdf(np.ceil((levels + 1 / 255) * 12 - 1e-9) - 1, x * 12),
        "impulse_noise": 0.045 + 0.91 * (levels >= x),
        "speckle_noise": norm.cdf((levels + 1 / 255 - x) / (0.35 * x)) if x else np.ones(256),
    }[kind]
    upper[-1] = 1
    found = np.bincount(corrupt(image, kind, 3, image_id="a").ravel(), minlength=256).cumsum()
    assert np.abs(found / image.size - upper).max() < 0.003


def test_fields_of_random_numbers_are_splitmix64():
    def mixed(value: int) -> int:
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value ^ value >> 31

    key = 2**64 - 3
    bits = [mixed((key + k * 0x9E3779B97F4A7C15) % 2**64) for k in range(6)]
    uniform = noise.uniform_field(key, (2, 3), 0.0, 1.0)
    assert uniform.ravel().tolist() == [(value % 2**24) * 2.0**-24 for value in bits]
    normal = noise.normal_field(key, (2, 3), 0.0, 1.0)
    expected = norm.ppf([(value % 2**16 + 0.5) / 2**16 for value in bits])
    np.testing.assert_allclose(normal.ravel(), expected, rtol=1e-6)


def digest(image: np.ndarray) -> str:
    return hashlib.sha256(image.tobytes()).hexdigest()[:16]


def test_noise_is_pinned():
    """No release draws other noise: published numbers depend on it."""
    image = (np.arange(40 * 30 * 3) % 256).astype(np.uint8).reshape(40, 30, 3)
    found = {kind: digest(corrupt(image, kind, 3, image_id="a")) for kind in kinds_of_noise()}
    assert found == {
        "gaussian_noise": "55466fa66e7a16ce",
        "shot_noise": "f7865bf41077a512",
        "impulse_noise": "a1abec5e0a1d5fcc",
        "speckle_noise": "6dc511b9bdcb2b74",
    }


def kinds_of_noise() -> list[str]:
    return [kind for kind in KINDS.homes if family_of(kind) == "noise"]


CHILD = """
import hashlib, sys
import numpy as np
from incognita.benchmarks.corruptions import KINDS, corrupt
image = (np.arange(90 * 70 * 3) % 251).astype(np.uint8).reshape(90, 70, 3)
for kind in reversed(KINDS.homes):
    print(kind, hashlib.sha256(corrupt(image, kind, 4, image_id="b/c.jpg").tobytes()).hexdigest())
"""


def test_another_process_and_another_order_change_nothing():
    image = (np.arange(90 * 70 * 3) % 251).astype(np.uint8).reshape(90, 70, 3)
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, env=environment
    )
    found = dict(line.split() for line in done.stdout.splitlines())
    for kind in KINDS.homes:
        for other in ("c.jpg", "b/c.jpg"):
            here = corrupt(image, kind, 4, image_id=other)
        assert hashlib.sha256(here.tobytes()).hexdigest() == found[kind], kind


def test_threads_change_nothing():
    image, n_threads = scene(3, 150, 210), cv2.getNumThreads()
    jobs = [(kind, severity) for kind in KINDS.homes for severity in (2, 5)]
    try:
        cv2.setNumThreads(1)
        alone = [corrupt(image, *job, image_id="a") for job in jobs]
        cv2.setNumThreads(2)
        with ThreadPoolExecutor(2) as pool:
            together = list(pool.map(lambda job: corrupt(image, *job, image_id="a"), jobs))
    finally:
        cv2.setNumThreads(n_threads)
    for job, one, other in zip(jobs, alone, together, strict=True):
        assert np.array_equal(one, other), job


@pytest.mark.parametrize("kind", RANDOM)
def test_random_kinds_depend_on_id_and_seed_only(kind):
    image, before = scene(1, 64, 80), np.random.get_state()[1].copy()  # noqa: NPY002
    first = corrupt(image, kind, 3, image_id=7)
    assert np.array_equal(first, corrupt(image, kind, 3, image_id="7"))
    assert not np.array_equal(first, corrupt(image, kind, 3, image_id="8"))
    assert not np.array_equal(first, corrupt(image, kind, 3, image_id="7", seed=1))
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("kind", DETERMINISTIC)
def test_deterministic_kinds_do_not_depend_on_the_id(kind):
    image = scene(1, 64, 80)
    first, second = (corrupt(image, kind, 3, image_id=name) for name in ("a", "b"))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("kind", KINDS.homes)
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 2), (32, 32), (40, 300)])
def test_any_size_is_fine_and_the_image_stays(kind, shape):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    before = image.copy()
    for severity in SEVERITIES:
        out = corrupt(image, kind, severity, image_id="a")
        assert out.shape == image.shape
        assert out.dtype == np.uint8
        assert not np.shares_memory(out, image)
    assert np.array_equal(image, before)


@pytest.mark.parametrize("kind", KINDS.homes)
def test_a_view_is_corrupted_like_its_copy(kind):
    view = scene(2, 50, 60)[::-1, :, ::-1]
    assert np.array_equal(
        corrupt(view, kind, 2, image_id="a"), corrupt(view.copy(), kind, 2, image_id="a")
    )


@pytest.mark.parametrize("kind", sorted(set(KINDS.homes) - {"saturate"}))  # it fades, then glows
def test_a_higher_severity_changes_more(kind):
    image = scene(5, 96, 128).astype(int)
    errors = [
        np.mean([
            (corrupt(image.astype(np.uint8), kind, severity, image_id=k) - image) ** 2
            for k in range(1 if kind in DETERMINISTIC else 12)
        ])
        for severity in (1, 5)
    ]  # fmt: skip
    assert errors[1] > errors[0] > 0


def test_black_stays_black_in_fog_and_white_stays_white_in_snow():
    black, white = np.zeros((40, 50, 3), np.uint8), np.full((40, 50, 3), 255, np.uint8)
    assert not corrupt(black, "fog", 3, image_id="a").any()
    assert (corrupt(white, "snow", 3, image_id="a") == 255).all()


def test_the_texture_of_frost_has_the_mean_and_deviation_of_its_table():
    textures = [weather._frost_texture((240, 320), Draws(k)) for k in range(60)]
    assert np.mean(textures) == pytest.approx(weather.TEXTURE_MEAN, abs=1.5)
    assert np.std(textures) == pytest.approx(weather.TEXTURE_STD, abs=1.5)


def test_the_lists_are_those_of_the_papers():
    saod, imagenet_c = map(set, (kinds_of("saod"), kinds_of("imagenet-c")))
    assert len(KINDS.homes) == 19
    assert len(saod) == len(imagenet_c) == 15
    assert saod - imagenet_c == {"speckle_noise", "gaussian_blur"}
    assert imagenet_c - saod == {"glass_blur", "zoom_blur"}
    assert set(KINDS.homes) - saod - imagenet_c == {"spatter", "saturate"}
    assert Counter(map(family_of, KINDS.homes)) == {
        "noise": 4,
        "blur": 5,
        "weather": 5,
        "digital": 5,
    }


def test_kinds_are_drawn_evenly_from_seed_id_and_severity():
    kinds = LISTS["saod"]
    drawn = [draw_kind(kinds, k, 3, 0) for k in range(6000)]
    assert all(340 < n < 460 for n in Counter(drawn).values())
    assert drawn[::-1] == [draw_kind(kinds, str(k), 3, 0) for k in reversed(range(6000))]
    for severity, seed in ((5, 0), (3, 1)):
        others = [draw_kind(kinds, k, severity, seed) for k in range(6000)]
        assert 300 < sum(a == b for a, b in zip(drawn, others, strict=True)) < 500


def test_a_sample_of_imagenet_c_is_spread_over_all_pairs():
    sample = spread_evenly(50_000, kinds_of("imagenet-c"), SEVERITIES, sample=10_000)
    pairs = Counter((image.kind, image.severity) for image in sample)
    assert len(pairs) == 75
    assert set(pairs.values()) == {133, 134}
    assert len({image.image_index for image in sample}) == 10_000
    assert sample == spread_evenly(50_000, kinds_of("imagenet-c"), SEVERITIES, sample=10_000)
    assert sample != spread_evenly(
        50_000, kinds_of("imagenet-c"), SEVERITIES, sample=10_000, seed=1
    )


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 5), st.data())
def test_a_sample_is_even_over_pairs_and_images_and_never_repeats(
    n_images, n_kinds, n_levels, data
):
    kinds, severities = list(KINDS.homes)[:n_kinds], SEVERITIES[:n_levels]
    n_pairs = n_kinds * n_levels
    sample = data.draw(st.none() | st.integers(0, n_images * n_pairs))
    found = spread_evenly(n_images, kinds, severities, sample=sample)
    n = n_images * n_pairs if sample is None else sample
    assert len(set(found)) == len(found) == n
    assert [image.image_index for image in found] == sorted(image.image_index for image in found)
    by_pair = Counter((image.kind, image.severity) for image in found)
    by_image = Counter(image.image_index for image in found)
    for counts, n_items in ((by_pair, n_pairs), (by_image, n_images)):
        assert set(counts.values()) <= {n // n_items, -(-n // n_items)}


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize("severity", [0, 6, 2.5, -1, True, "3", None])
def test_a_wrong_severity_gets_a_sentence(severity):
    with pytest.raises(InvalidDataError, match=r"Expected a severity from 1 to 5, got .*whole"):
        corrupt(scene(0, 32, 32), "fog", severity, image_id="a")


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize(
    ("image", "got"),
    [
        (np.zeros((4, 4), np.uint8), r"got uint8 \[4, 4\]\. Convert it to RGB"),
        (np.zeros((4, 4, 4), np.uint8), r"got uint8 \[4, 4, 4\]"),
        (np.zeros((4, 4, 3), np.float32), r"got float32 \[4, 4, 3\]"),
        (np.zeros((0, 4, 3), np.uint8), r"got uint8 \[0, 4, 3\]"),
        ([[0]], r"got list"),
    ],
)
def test_a_wrong_image_gets_a_sentence(image, got):
    with pytest.raises(InvalidDataError, match=got):
        corrupt(image, "fog", 1, image_id="a")


def test_a_wrong_name_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match=r"'fogg'\. Did you mean fog\?"):
        corrupt(scene(0, 32, 32), "fogg", 1, image_id="a")
    with pytest.raises(UnknownNameError, match=r"Did you mean imagenet-c\?"):
        kinds_of("imagenetc")
    with pytest.raises(UnknownNameError, match=r"Did you mean snow\?"):
        family_of("snov")


def test_a_wrong_sample_gets_a_sentence():
    with pytest.raises(InvalidDataError, match=r"at most 40 \(20 images, 2 pairs .* got 41"):
        spread_evenly(20, ["fog", "snow"], [3], sample=41)
    with pytest.raises(InvalidDataError, match="got none"):
        draw_kind([], "a", 3, 0)
