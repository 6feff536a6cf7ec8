"""Lets torchvision's CUDA build be imported beside torch's CPU build, for vLLM's test environment.

Its C extension cannot be loaded there, so the schema of ``torchvision::nms`` is missing and ``import torchvision``
raises. This declares the schema before torchvision looks for it; its transforms work then, its C operators do not.
``.ci/setup_vllm`` puts a copy into the environment's site-packages with a ``.pth`` file that imports it.
"""

import importlib.abc
import sys

__all__ = ["Finder"]


class Finder(importlib.abc.MetaPathFinder):
    """Finds nothing; sees the first import of torchvision coming and leaves."""

    def find_spec(self, fullname, path=None, target=None):
        """None always, so that the next finder is asked."""
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            _declare()


def _declare() -> None:
    import torch

    if not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch._torchvision_shim = library  # the schema lives as long as this object


# Only as the copy that setup_vllm made; the test suite may import this file for what it says.
if __name__ == "_torchvision_shim":
    sys.meta_path.insert(0, Finder())
