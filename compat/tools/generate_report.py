"""torch_ttnn's script `tools/generate_report.py`."""

from torchport_compat.tools.generate_report import main

if __name__ == "__main__":
    main()
