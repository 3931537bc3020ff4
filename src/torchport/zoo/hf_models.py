"""Loads transformers models by their name on the hub, from a folder, or from a built-in configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from torchport.errors import ZooError, nearest, one_line
from torchport.torch_private import detect_fake_mode
from torchport.zoo.extras import import_library
from torchport.zoo.hf_builtin import ALIASES, CONFIGURATIONS, WITHOUT_WEIGHTS, full_name
from torchport.zoo.hf_input_makers import InputSizes
from torchport.zoo.hf_inputs import make_inputs
from torchport.zoo.model import Model
from torchport.zoo.network import host_of, hub_endpoint, is_reachable, weights_error
from torchport.zoo.random_weights import fixed_seed, wake_zero_weights

if TYPE_CHECKING:
    from transformers import PretrainedConfig

SCHEME = "hf"


def names() -> list[str]:
    """Return the names that build without network, sorted; `load_hf` also takes any name on the hub."""
    return sorted(CONFIGURATIONS)


def load_hf(name: str, *, weights: bool, batch: int) -> Model:
    """Load the transformers model `name`.

    Args:
        name: a folder with a `config.json`, a built-in name, or a name on the hub.
        weights: whether to load its weights; otherwise it is built from its configuration with random ones.
        batch: the batch size of the inputs.

    Returns:
        The model, as an instance of the class that its configuration names, with inputs made from its
        signature.

    Raises:
        ZooError: there is no such model, its weights or configuration are unavailable, or inputs cannot be
            made for it.
    """
    import_library("transformers")
    source = _Source(name)
    config = source.config(weights)
    module = source.pretrained(config) if weights else _build_random(name, config)
    module.eval()
    return Model(f"{SCHEME}:{name}", module, (), make_inputs(module, config, InputSizes(batch=batch)))


class _Source:
    """Where one model comes from.

    Args:
        name: the name that the user gave.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = _find_folder(name)
        self.id = str(self.folder) if self.folder is not None else full_name(name)

    def config(self, weights: bool) -> PretrainedConfig:
        """Return the model's configuration; the built-in one if it exists and no weights are needed."""
        if self.folder is None and self.id in CONFIGURATIONS and not weights:
            return _builtin_config(self.id)
        if self.id in WITHOUT_WEIGHTS:
            raise weights_error(f"{SCHEME}:{self.name}", "it is only a configuration, without weights")
        from transformers import AutoConfig

        offline = self._is_offline()
        try:
            # Without the last argument, transformers would prompt on the terminal whether to run the code of
            # a model that has its own.
            config: PretrainedConfig = AutoConfig.from_pretrained(
                self.id, local_files_only=offline, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError) as error:
            raise self._config_error(error, weights, offline) from error
        return config

    def pretrained(self, config: PretrainedConfig) -> nn.Module:
        """Return the model with its weights."""
        load = _model_class(config).from_pretrained  # type: ignore[attr-defined]  # every model class has it
        module: nn.Module
        try:
            module, info = load(
                self.id, config=config, local_files_only=self._is_offline(), output_loading_info=True
            )
        except OSError as error:
            raise weights_error(f"{SCHEME}:{self.name}", one_line(error)) from error
        missing = sorted(info["missing_keys"])
        if missing:
            # transformers would fill them with random values, with a warning.
            raise weights_error(
                f"{SCHEME}:{self.name}", f"its checkpoint lacks {len(missing)} tensors: {missing[0]}, …"
            )
        return module

    def _is_offline(self) -> bool:
        if self.folder is not None:
            return True
        return not is_reachable(hub_endpoint())

    def _config_error(self, error: Exception, weights: bool, offline: bool) -> ZooError:
        if self.folder is not None:
            return ZooError(
                f"its config.json cannot be read ({one_line(error)})",
                where=str(self.folder),
                remedy="it must be the configuration of a model that the installed transformers knows",
            )
        reason = one_line(error)
        if offline:
            reason = f"{host_of(hub_endpoint())} cannot be reached, and it is not in the cache"
        if weights and self.id in CONFIGURATIONS:
            return weights_error(f"{SCHEME}:{self.name}", reason)
        advice = "use a folder with a config.json or a built-in name"
        known = nearest(self.name, [*CONFIGURATIONS, *ALIASES])
        return ZooError(f"{SCHEME}:{self.name} cannot be found ({reason})", remedy=f"{advice}; {known}")


def _find_folder(name: str) -> Path | None:
    """Return the folder that `name` refers to, or None if it is a name on the hub."""
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder
    if folder.is_dir() and full_name(name) not in CONFIGURATIONS:
        raise ZooError(
            "it has no config.json", where=str(folder), remedy="use a folder that save_pretrained() wrote"
        )
    if name.startswith((".", "~")) or os.path.isabs(name):
        raise ZooError("there is no such folder", where=name, remedy="use a folder with a config.json")
    return None


def _builtin_config(name: str) -> PretrainedConfig:
    from transformers import AutoConfig

    values = dict(CONFIGURATIONS[name])
    config: PretrainedConfig = AutoConfig.for_model(str(values.pop("model_type")), **values)
    return config


def _model_class(config: PretrainedConfig) -> type:
    """Return the model class that the configuration names, or the class for base models."""
    import transformers

    for architecture in config.architectures or ():
        named = getattr(transformers, architecture, None)
        if isinstance(named, type):
            return named
    base: type = transformers.AutoModel
    return base


def _build_random(name: str, config: PretrainedConfig) -> nn.Module:
    if detect_fake_mode() is None and torch.get_default_device().type != "meta":
        _check_memory(name, config)
    with fixed_seed():
        module = _from_config(config)
        wake_zero_weights(module)
    return module


def _from_config(config: PretrainedConfig) -> nn.Module:
    from transformers import AutoModel

    chosen = _model_class(config)
    build = AutoModel.from_config if chosen is AutoModel else chosen._from_config  # type: ignore[attr-defined]  # as above
    module: nn.Module = build(config)
    return module


def _check_memory(name: str, config: PretrainedConfig) -> None:
    """Reject a model whose weights exceed the machine's memory, before the system kills the process."""
    with torch.device("meta"):
        module = _from_config(config)
    needed = sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())
    present = _memory_bytes()
    if present and needed > present:
        raise ZooError(
            f"its weights take {needed / 1e9:,.0f} GB and this machine has {present / 1e9:,.0f} GB",
            where=f"{SCHEME}:{name}",
            remedy="load it without values, for analysis: device='meta'",
        )


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0  # not a POSIX system: the memory is unknown, and nothing is rejected
