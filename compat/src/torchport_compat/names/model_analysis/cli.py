"""The command `tt-model-analysis`."""

from torchport_compat.tools.model_analysis import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
