"""torch_ttnn's script `tools/stat_torchvision.py`."""

from torchport_compat.tools.stat_torchvision import main

if __name__ == "__main__":
    main()
