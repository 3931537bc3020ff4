"""Makes torchvision importable, and its detection ops runnable, where its compiled extension does not load.

torchvision's wheel contains a shared library that is linked against one build of torch. With another build,
usually a CPU one, the library does not load: `import torchvision` fails with `operator torchvision::nms
does not exist`, and so do timm and parts of transformers. The import only needs the ops' *schemas*, so they
are declared here, and the ops that torchvision's models call get kernels in plain Python.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType

import torch

from torchport.torch_private import has_kernel, is_dynamo_loaded
from torchport.zoo import torchvision_kernels as kernels

logger = logging.getLogger(__name__)

# Copied verbatim from torchvision's csrc, so that graphs captured here look like those of a full build.
SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "box_iou_rotated": "(Tensor boxes1, Tensor boxes2) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward": "(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "qroi_align": "(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
    "int rois_zero_point, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width) -> (Tensor, Tensor)",
    "_roi_pool_backward": "(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, "
    "SymInt pooled_height, SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, "
    "SymInt width) -> Tensor",
    "ps_roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward": "(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, "
    "SymInt pooled_height, SymInt pooled_width, int sampling_ratio, SymInt batch_size, SymInt channels, "
    "SymInt height, SymInt width) -> Tensor",
    "ps_roi_pool": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward": "(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, "
    "SymInt pooled_height, SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, "
    "SymInt width) -> Tensor",
    "deform_conv2d": "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
    "_deform_conv2d_backward": "(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, "
    "Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
    "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
}

# The kernels that torchvision's models need, by op and dispatch key. torchvision has a Meta kernel for nms.
KERNELS: dict[tuple[str, str], Callable[..., object]] = {
    ("nms", "CPU"): kernels.nms,
    ("roi_align", "CPU"): kernels.roi_align,
    ("roi_align", "Meta"): kernels.roi_align_meta,
    ("_roi_align_backward", "CPU"): kernels.roi_align_backward,
    ("_roi_align_backward", "Meta"): kernels.roi_align_backward_meta,
}

_lock = threading.Lock()
# A Library removes its registrations when it is garbage-collected, so this one lives as long as the process.
_library: torch.library.Library | None = None


def ensure_torchvision_ops() -> None:
    """Make `import torchvision` work with any build of torch.

    Does nothing if torchvision is not installed or its own ops load; never replaces an existing kernel. May
    be called any number of times, also after torchvision was imported.

    Raises:
        Exception: whatever `import torchvision` itself raises for other reasons.

    Example:
        >>> ensure_torchvision_ops()
        >>> import torchvision
    """
    global _library
    if importlib.util.find_spec("torchvision") is None:
        return
    with _lock:
        if _library is None and not _extension_works():
            _library = _register_missing(torch.library.Library("torchvision", "FRAGMENT"))
            logger.info("torchvision's compiled ops do not load: using Python kernels instead")
        torchvision = importlib.import_module("torchvision")
        if _library is not None:
            _announce(torchvision)


def _extension_works() -> bool:
    """Load torchvision's shared library as torchvision does; return whether its ops are available."""
    extension = sys.modules.get("torchvision.extension")
    if extension is not None:
        return bool(extension._has_ops())
    if any(_is_defined(op) for op in SCHEMAS):
        # Other code has declared the ops. Loading the library would declare them twice, which aborts the
        # whole process rather than just the import; torchvision's own import, which follows, may do so.
        return _has_kernel("nms", "CPU")
    path = _extension_path()
    if path is None:
        return False
    try:
        torch.ops.load_library(path)
    except OSError as error:
        logger.debug("torchvision's extension does not load: %s", error)
        return False
    return _is_defined("nms")


def _extension_path() -> str | None:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return None
    folder = os.path.dirname(spec.origin)
    if sys.platform == "win32":
        os.add_dll_directory(folder)
    loader = (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES)
    found = importlib.machinery.FileFinder(folder, loader).find_spec("_C")
    return found.origin if found is not None else None


def _register_missing(library: torch.library.Library) -> torch.library.Library:
    missing = [op for op in SCHEMAS if not _is_defined(op)]
    for op in missing:
        library.define(op + SCHEMAS[op])
    for (op, key), kernel in KERNELS.items():
        if not _has_kernel(op, key):
            library.impl(op, opaque_to_dynamo(kernel) if key == "CPU" else kernel, key)
    if "roi_align" in missing:
        torch.library.register_autograd(
            "torchvision::roi_align",
            kernels.roi_align_autograd,
            setup_context=kernels.roi_align_save,
            lib=library,
        )
    return library


def opaque_to_dynamo(kernel: Callable[..., object]) -> Callable[..., object]:
    """Return a kernel that torch.compile does not trace into, like those of the compiled extension."""

    @functools.wraps(kernel)
    def run(*args: object) -> object:
        whole = torch.compiler.disable(kernel) if is_dynamo_loaded() else kernel
        return whole(*args)

    return run


def _is_defined(op: str) -> bool:
    # hasattr on torch.ops queries the dispatcher, without private names of torch.
    return hasattr(torch.ops.torchvision, op)


def _has_kernel(op: str, key: str) -> bool:
    return bool(has_kernel(f"torchvision::{op}", key))


def _announce(torchvision: ModuleType) -> None:
    """Make torchvision's Python code treat its ops as available.

    Its functions check `extension._has_ops()` before calling an op; if that is False they raise, or compile
    a substitute with inductor. The check reports on the library that failed to load, although the ops now
    exist. Some modules import the function by name, so it is replaced in each of them.
    """
    has_ops = torchvision.extension._has_ops
    if has_ops():
        return
    for name, module in list(sys.modules.items()):
        if name.startswith("torchvision.") and vars(module).get("_has_ops") is has_ops:
            module._has_ops = _ops_available  # type: ignore[attr-defined]  # torchvision calls it


def _ops_available() -> bool:
    return True
