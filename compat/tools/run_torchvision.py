"""`tools/run_torchvision.py`, as torch_ttnn has it."""

from torchport_compat.tools.run_torchvision import main

if __name__ == "__main__":
    main()
