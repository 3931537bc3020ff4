"""The records of modules and ops."""

from torchport.records import UniqueModule as ModuleInfo
from torchport.records import UniqueOp as OpInfo

__all__ = ["ModuleInfo", "OpInfo"]
