"""Classifiers and detectors of torchvision."""
