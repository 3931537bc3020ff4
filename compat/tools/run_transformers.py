"""`tools/run_transformers.py`, as torch_ttnn has it."""

from torchport_compat.tools.run_transformers import main

if __name__ == "__main__":
    main()
