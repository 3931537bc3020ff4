"""`tools/generate_report.py`, as torch_ttnn has it."""

from torchport_compat.tools.generate_report import main

if __name__ == "__main__":
    main()
