"""`tools/collect_metrics.py`, as torch_ttnn has it."""

from torchport_compat.tools.collect_metrics import main

if __name__ == "__main__":
    main()
