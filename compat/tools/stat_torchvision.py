"""`tools/stat_torchvision.py`, as torch_ttnn has it."""

from torchport_compat.tools.stat_torchvision import main

if __name__ == "__main__":
    main()
