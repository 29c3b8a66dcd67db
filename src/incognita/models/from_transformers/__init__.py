"""Classifiers, zero-shot classifiers and detectors of transformers."""
