"""The door of ultralytics (AGPL-3.0): the only file that imports it, when a model asks for it."""

import os
from functools import cache
from types import ModuleType

import cv2
import numpy as np
from torch._tensor_str import printoptions

from incognita.registry import need

# read when ultralytics is imported: no network is asked, nothing is installed, nothing is printed
_SWITCHES = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_VERBOSE": "false"}


@cache
def part(name: str) -> ModuleType:
    """Import a part of ultralytics, such as `utils.ops`, and undo what that changes elsewhere.

    Importing it looks for a network, sets how arrays are printed and how many threads OpenCV has,
    and leaves variables in the environment that child processes inherit.
    """
    environment, n_threads = dict(os.environ), cv2.getNumThreads()
    os.environ.update({**_SWITCHES, **environment})
    try:
        with np.printoptions(), printoptions():
            return need(f"ultralytics.{name}", extra="ultralytics")
    finally:
        cv2.setNumThreads(n_threads)
        os.environ.clear()
        os.environ.update(environment)
