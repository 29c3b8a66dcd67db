"""On what we evaluate: annotated images, detections, and which of their classes are known."""
