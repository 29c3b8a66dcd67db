"""YOLO detectors of ultralytics (AGPL; an optional extra)."""
