"""Metrics for training loops: equal to ours on the whole, to torchmetrics, and over processes."""

import pickle

import numpy as np
import pytest
import torch
import torch.multiprocessing as processes
from tests.containers.random_boxes import CLASSES, random_boxes
from torch import distributed

from incognita.errors import InvalidDataError
from incognita.evaluation.certify import certify
from incognita.formats import save_detections, save_truth
from incognita.integrations.torchmetrics import OpenSetDetection, UnknownRanking
from incognita.metrics import ranking_metrics

torchmetrics = pytest.importorskip("torchmetrics")


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    is_unknown = rng.random(n) < 0.4
    scores = rng.normal(size=n).round(1) + is_unknown  # with ties
    return torch.tensor(scores), torch.tensor(is_unknown)


def images(found, truth):
    """What torchmetrics takes: one mapping per image for predictions and for targets."""
    preds, target = [], []
    for k in range(truth.n_images):
        a, b = found.offsets[k : k + 2]
        preds.append(
            {
                "boxes": torch.tensor(found.xyxy[a:b]),
                "scores": torch.tensor(found.confidence[a:b]),
                "labels": torch.tensor(found.class_ids[a:b]).long(),
            }
        )
        a, b = truth.offsets[k : k + 2]
        labels = torch.tensor(truth.class_ids[a:b]).long()
        target.append({"boxes": torch.tensor(truth.xyxy[a:b]), "labels": labels})
    return preds, target


def filled(metric, *, seed=0, part=slice(None)):
    """Update with a part of the rows or images, two at a time."""
    if isinstance(metric, UnknownRanking):
        scores, truths = (column[part] for column in rows(seed=seed))
        for k in range(0, len(scores), 64):
            metric.update(scores[k : k + 64], truths[k : k + 64])
    else:
        preds, target = (column[part] for column in images(*random_boxes(30, seed)))
        for k in range(0, len(preds), 2):
            metric.update(preds[k : k + 2], target[k : k + 2])
    return metric


KINDS = [UnknownRanking, lambda: OpenSetDetection(["car", "bus"])]


def test_ranking_equals_ours_on_the_whole():
    scores, truths = rows()
    ours = ranking_metrics(scores.numpy(), truths.numpy())
    found = filled(UnknownRanking()).compute()
    assert set(found) >= {"auroc", "aupr_unknown", "fpr_at_95_unknown_recall"}
    for name, value in found.items():
        assert float(value) == getattr(ours, name), name


def test_ranking_equals_torchmetrics():
    scores, truths = rows()
    scores = (scores - scores.min()) / (scores.max() - scores.min())
    metric = UnknownRanking()
    metric.update(scores, truths)
    found = metric.compute()
    theirs = torchmetrics.classification.BinaryAUROC()(scores.float(), truths.long())
    assert float(found["auroc"]) == pytest.approx(float(theirs), abs=1e-6)
    measure = torchmetrics.classification.BinaryAveragePrecision()
    precision = measure(scores.float(), truths.long())
    assert float(found["aupr_unknown"]) == pytest.approx(float(precision), abs=1e-6)


@pytest.mark.parametrize("convention", ["paper", "owod", "fmiyc", "coco"])
def test_open_set_equals_a_certificate_of_the_same_boxes(convention, tmp_path):
    found, truth = random_boxes(30)
    save_truth(truth, tmp_path / "truth.json")
    save_detections(found, tmp_path / "found.json", categories={1: 0, 2: 1, 3: 2})
    certificate = certify(
        tmp_path / "truth.json", tmp_path / "found.json", known=["car", "bus"],
        n_resamples=0,
    )  # fmt: skip
    metric = filled(OpenSetDetection(["car", "bus"], convention=convention))
    numbers = metric.compute()
    assert numbers
    for name, value in numbers.items():
        expected = certificate.get(name, convention).value
        assert float(value) == pytest.approx(expected, abs=1e-6, nan_ok=True), name
    assert CLASSES.names[:2] == metric.classes.known_names


@pytest.mark.parametrize("seed", range(4))
def test_known_average_precision_equals_torchmetrics(seed):
    preds, target = images(*random_boxes(30, seed))
    # its own thresholds are rounded to float32, so that a recall of 0.1 misses the one at 0.1
    theirs = torchmetrics.detection.MeanAveragePrecision(
        iou_thresholds=np.linspace(0.5, 0.95, 10).tolist(),
        rec_thresholds=np.linspace(0, 1, 101).tolist(),
    )
    known = [
        [{key: v[image["labels"] < 2] for key, v in image.items()} for image in column]
        for column in (preds, target)
    ]
    theirs.update(*known)
    numbers = filled(OpenSetDetection(2, convention="coco"), seed=seed).compute()
    expected = theirs.compute()
    assert float(numbers["ap"]) == pytest.approx(float(expected["map"]), abs=1e-6)
    assert float(numbers["ap50"]) == pytest.approx(float(expected["map_50"]), abs=1e-6)


@pytest.mark.parametrize("box_format", ["xywh", "cxcywh"])
def test_other_box_formats_give_the_same_numbers(box_format):
    from torchvision.ops import box_convert

    preds, target = images(*random_boxes(30))
    changed = [
        [{**image, "boxes": box_convert(image["boxes"], "xyxy", box_format)} for image in column]
        for column in (preds, target)
    ]
    metric = OpenSetDetection(2, box_format=box_format)
    metric.update(*changed)
    expected = filled(OpenSetDetection(2)).compute()
    for name, value in metric.compute().items():
        assert float(value) == pytest.approx(float(expected[name]), abs=1e-6, nan_ok=True), name


def test_every_label_from_n_known_on_is_unknown():
    preds, target = images(*random_boxes(30))
    for image in (*preds, *target):
        image["labels"] = torch.where(image["labels"] == 2, 90, image["labels"])
    metric = OpenSetDetection(2)
    metric.update(preds, target)
    assert same(metric.compute(), filled(OpenSetDetection(2)).compute())


def same(first, second):
    assert set(first) == set(second)
    for name in first:
        np.testing.assert_equal(float(first[name]), float(second[name]), err_msg=name)
    return True


@pytest.mark.parametrize("kind", KINDS, ids=["ranking", "open set"])
def test_a_metric_survives_what_training_does_to_it(kind):
    metric = filled(kind())
    expected = metric.compute()
    assert same(pickle.loads(pickle.dumps(metric)).compute(), expected)
    assert same(metric.clone().to("cpu").compute(), expected)
    assert same(metric.half().float().compute(), expected)  # scores stay float64
    metric.reset()
    assert same(filled(metric).compute(), expected)


def test_the_value_of_a_batch_is_returned_and_all_batches_are_kept():
    metric = UnknownRanking()
    parts = [rows(100, seed=k) for k in range(2)]
    values = [metric(*part) for part in parts]
    for value, (scores, truths) in zip(values, parts, strict=True):
        assert float(value["auroc"]) == ranking_metrics(scores.numpy(), truths.numpy()).auroc
    joined = [torch.cat(column).numpy() for column in zip(*parts, strict=True)]
    assert float(metric.compute()["auroc"]) == ranking_metrics(*joined).auroc


def test_a_collection_takes_it():
    collection = torchmetrics.MetricCollection({"energy": UnknownRanking()}, prefix="val/")
    collection.update(*rows())
    assert "val/auroc" in {name.replace("energy_", "") for name in collection.compute()}


def test_one_kind_of_rows_has_no_number():
    metric = UnknownRanking()
    metric.update(torch.tensor([1.0, 2.0]), torch.tensor([False, False]))
    assert all(value.isnan() for value in metric.compute().values())


@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")
def test_what_is_wrong_is_a_sentence():
    with pytest.raises(InvalidDataError, match=r"shapes \[2\] and \[3\]"):
        UnknownRanking().update(torch.zeros(2), torch.zeros(3))
    with pytest.raises(InvalidDataError, match="as many predictions as targets, got 0 and 1"):
        OpenSetDetection(2).update([], [{}])
    with pytest.raises(InvalidDataError, match="convention to be one of paper"):
        OpenSetDetection(2, convention="mine")
    with pytest.raises(InvalidDataError, match="box_format to be one of xyxy"):
        OpenSetDetection(2, box_format="xxyy")
    with pytest.raises(InvalidDataError, match="Leave 'unknown' out"):
        OpenSetDetection(["car", "unknown"])
    with pytest.raises(InvalidDataError, match="Call update first"):
        OpenSetDetection(2).compute()


# ------------------------------------------------------------------------ two processes


def work(rank, port, n_first, queue):
    """Compute both metrics in one of two processes; the first gets `n_first` rows and images."""
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    part = slice(0, n_first) if rank == 0 else slice(n_first, None)
    numbers = []
    for kind in KINDS:
        found = filled(kind(), part=part).compute()
        numbers.append({name: float(value) for name, value in found.items()})
    queue.put((rank, numbers))
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("n_first", [7, 0], ids=["both", "one without data"])
def test_two_processes_compute_what_one_does(n_first, unused_port):
    context = processes.get_context("spawn")
    queue = context.SimpleQueue()
    processes.spawn(work, args=(unused_port, n_first, queue), nprocs=2)
    by_rank = dict(queue.get() for _ in range(2))
    for kind, *both in zip(KINDS, by_rank[0], by_rank[1], strict=True):
        expected = filled(kind()).compute()
        for numbers in both:
            assert same(numbers, expected)


@pytest.fixture
def unused_port():
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]
