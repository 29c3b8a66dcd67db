"""What does my detector do with unknown objects? Boxes, features and logits in one pass.

python examples/my_detector.py writes my_detector.html.
"""

import incognita
from incognita.models.embedded.terra_detector import CLASS_NAMES, load_terra_detector

# Any detector of torchvision, transformers or ultralytics; this one is a Faster R-CNN.
network = load_terra_detector()
detector = incognita.wrap_detector(network, class_names=CLASS_NAMES, name="my detector")

# One scene: boxes as the library returns them, with what the methods need.
scenes = incognita.load_benchmark("terra/detection", limit=20)
scene = scenes.unknown["near"]["near"].load(0)
found = incognita.detect(detector, scene)
print(f"{len(found)} boxes, the surest a {found.classes.names[found.class_ids[0]]}")
print(f"features {tuple(found.features.shape)}, logits {tuple(found.logits.shape)}")

# Known, near, far and farther scenes: which method tells unknown objects from known ones, and what
# becomes of the unknown objects. t* and tau are chosen on validation scenes.
boxes = incognita.BoxOptions(confidence_threshold="f1", unknown_threshold="quantile")
report = incognita.evaluate(detector, scenes, "msp, energy, mds", boxes=boxes)
print(report)
recall = report.get("energy").get("unknown_recall", "near")
print(f"{recall.value:.0%} of the near unknown objects are found as unknown by energy.")
report.save_html("my_detector.html")
