"""torch_ttnn's script `tools/run_torchvision.py`."""

from torchport_compat.tools.run_torchvision import main

if __name__ == "__main__":
    main()
