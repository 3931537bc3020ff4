"""torch_ttnn's script `tools/run_transformers.py`."""

from torchport_compat.tools.run_transformers import main

if __name__ == "__main__":
    main()
