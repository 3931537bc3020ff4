"""Builds the transformers model that a file describes, without weights, to use the library's generation loop.

The file names a class and contains its configurations. By name, only the library's generating classes are
looked up; settings that could make the library download or run other code are dropped or refused.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_module_registration_hook

from torchport.errors import PackageError, RuntimeRefusal, one_line
from torchport.packaging.generation_settings import checked_settings
from torchport.packaging.structure_json import class_name
from torchport.records import PackagedGeneration
from torchport.zoo.torchvision_ops import ensure_torchvision_ops

ATTENTIONS = ("sdpa", "eager")  # other names are looked up elsewhere, and may download code

_MODULES = re.compile(r"transformers\.models\.[a-z0-9_]+\.(modeling|modular)_[a-z0-9_]+")
# Settings that make the library load code, kernels or weights from elsewhere.
_LEFT_OUT = re.compile(
    r"auto_map|quantization_config|kernel_config|_?(attn|experts)_implementation.*|_name_or_path|"
    r"num_labels|id2label|label2id"  # classification's, of which the library makes a dict of any size
)
_REFUSED = re.compile(r".*backbone.*|trust_remote_code|custom_.*|model_args")
_MOST_LAYERS = 1 << 16  # the library makes lists of as many items
_MOST_MODULES = 4096  # per layer; the models with the most experts have half as many
# A timm architecture name; with a colon or a slash, it would name a hub or a folder.
_ARCHITECTURE = re.compile(r"[\w.-]*")


def model_without_weights(packaged: PackagedGeneration, classes: Iterable[type], where: str) -> Any:
    """Build the model that a file describes, on the meta device.

    Args:
        packaged: the file's description of how the model generates.
        classes: classes that the caller permits in addition to the library's.
        where: the file.

    Raises:
        RuntimeRefusal: transformers is not installed.
        PackageError: the file names a class or setting that is not permitted, or transformers rejects its
            configuration.
    """
    ensure_torchvision_ops()  # without them, parts of the library cannot be imported
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise RuntimeRefusal(
            "generate needs the library transformers, which is not installed",
            where=where,
            remedy="pip install transformers, or use prefill and step",
        ) from error
    try:
        kind = _find_class(packaged.model_class, classes, transformers)
        if packaged.attention not in ATTENTIONS:
            raise PackageError(f"it asks for the attention {packaged.attention[:80]!r}")
        plain = _plain(packaged.config)
        _check_layers(plain)
        config = kind.config_class.from_dict(plain)
        config._attn_implementation = packaged.attention
        with torch.device("meta"), _bounded_modules(len(packaged.form.layers)):
            model = kind(config)
        if isinstance(config.dtype, torch.dtype):  # the library prepares masks in the model's dtype
            model = model.to(config.dtype)
        settings_class = transformers.GenerationConfig
        settings = checked_settings(
            _plain(packaged.generation_config), lambda name: hasattr(settings_class, name)
        )
        model.generation_config = settings_class.from_dict(settings)
    except PackageError as error:
        raise PackageError(error.what, where=where, remedy=error.remedy) from error
    except Exception as error:  # the library raises many kinds
        raise PackageError(
            f"transformers {transformers.__version__} does not accept its configuration: {one_line(error)}",
            where=where,
            remedy="use the version that it was saved with, or prefill and step",
        ) from error
    return model.eval()


@contextmanager
def _bounded_modules(layers: int) -> Iterator[None]:
    """Refuse a model with far too many modules for the layers in its cache: each takes memory.

    Raises:
        PackageError: the model has too many modules.
    """
    most, made, here = _MOST_MODULES * (layers + 1), 0, threading.get_ident()

    def count(*_: object) -> None:
        nonlocal made
        made += threading.get_ident() == here
        if made > most:
            raise PackageError(f"its configuration asks for more than {most:,} modules")

    hook = register_module_module_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def _find_class(name: str, classes: Iterable[type], transformers: Any) -> Any:
    given = {class_name(kind): kind for kind in classes}
    module, _, qualified = name.partition(":")
    found: object = given.get(name)
    if found is None and _MODULES.fullmatch(module) and qualified.isidentifier():
        try:
            found = getattr(importlib.import_module(module), qualified, None)
        except (ImportError, RuntimeError):
            found = None
    if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
        made: Any = found
        if made.can_generate():
            return made
    raise PackageError(
        f"it generates with the class {name[:200].replace(':', '.')}, which is not known here",
        remedy="pass the class: torchport.load(path, classes=[...])",
    )


def _check_layers(config: object) -> None:
    """Refuse impossible numbers of layers.

    Raises:
        PackageError: the configuration has one.
    """
    items = (
        config.items() if isinstance(config, dict) else enumerate(config if isinstance(config, list) else ())
    )
    for name, value in items:
        if isinstance(value, (int, float)) and "layer" in str(name) and value > _MOST_LAYERS:
            raise PackageError(f"its configuration has the {str(name)[:80]} {str(value)[:80]}")
        _check_layers(value)


def _plain(data: object) -> Any:
    """Return a configuration without settings that make the library load from elsewhere.

    Raises:
        PackageError: it has a setting of that kind which changes the model, and so cannot be dropped.
    """
    if isinstance(data, dict):
        for key, value in data.items():
            if _REFUSED.fullmatch(key) and value not in (None, False, [], {}):
                raise PackageError(f"its configuration has {key[:80]!r}, which may lead to other files")
            if key == "architecture" and not _ARCHITECTURE.fullmatch(str(value)):
                raise PackageError(f"its configuration has the architecture {str(value)[:80]!r}")
        return {key: _plain(value) for key, value in data.items() if not _LEFT_OUT.fullmatch(key)}
    return [_plain(item) for item in data] if isinstance(data, list) else data
