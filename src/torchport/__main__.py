"""`python -m torchport` is the command `torchport`."""

from torchport.cli.main import main

if __name__ == "__main__":
    main()
