"""torch_ttnn's script `tools/collect_metrics.py`."""

from torchport_compat.tools.collect_metrics import main

if __name__ == "__main__":
    main()
