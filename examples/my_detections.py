"""My detections on disk: two COCO files and the classes of the detector.

python examples/my_detections.py writes my_detections.html and my_detections.json.
"""

from importlib.resources import files

import incognita
from incognita.results import Claim

# 120 street scenes that ship with the package; scooters, deer and suitcases are unknown.
street = files("incognita.benchmarks") / "examples" / "street"
known = ["person", "bicycle", "car", "bus", "dog"]

# What must hold, each claim with the confidence that is asked for.
criteria = [
    Claim(metric="unknown_recall", split="unknown-only", at_least=0.15, confidence=0.95),
    Claim(name="REQ-7", metric="laece", at_most=0.25),
    Claim(name="REQ-8", metric="unknown_recall", at_least=0.5),
]
certificate = incognita.certify(
    street / "truth.json", street / "detections.json", known=known, criteria=criteria
)
print(certificate)
for checked in certificate.claims:
    print(f"{checked.verdict.value}: {checked.claim}: {checked.reason}")

certificate.save("my_detections.json")
certificate.save_html("my_detections.html")
