"""Imported once, by the process from which rows are forked: the imports take as long as a small row."""

from __future__ import annotations

from torchport.zoo.torchvision_ops import ensure_torchvision_ops

ensure_torchvision_ops()  # before anything imports torchvision, hence E402; nothing is used here, hence F401

import explain_rows  # noqa: E402, F401
import graph_row  # noqa: E402, F401
import judge_row  # noqa: E402, F401
import timm  # noqa: E402, F401
import torchvision  # noqa: E402, F401
import train_row  # noqa: E402, F401
import transformers  # noqa: E402, F401

import torchport.bringup  # noqa: E402, F401
