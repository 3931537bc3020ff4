"""Takes the place of the device's compiler: whatever kernel is asked for, an empty one is linked.

A mock chip runs no kernel, and the library's wheel brings no compiler along. The words in angle brackets
are filled in when the interpreter is built.
"""

import shutil
import subprocess
import sys
from pathlib import Path

KERNEL = "<kernel>"
FIRMWARE = Path("<firmware>")


def link(options, target):
    """Link the empty kernel with the script and symbols that the library gives."""
    script = next(option[2:] for option in options if option.startswith("-T"))
    symbols = [option[len("-Wl,") :] for option in options if option.startswith("-Wl,--just-symbols")]
    pages = ["-z", "max-page-size=16", "-z", "common-page-size=16"]
    command = ["riscv64-unknown-elf-ld", "-melf32lriscv", "--emit-relocs", *pages, *symbols]
    subprocess.run([*command, "-T", script, KERNEL, "-o", str(target)], check=True)


def main():
    """Do what the compiler was called for."""
    options = sys.argv[1:]
    if options[:1] == ["--version"]:
        sys.stdout.write("riscv-tt-elf-g++ (none) 15.1.0\n")
        return
    target = Path(options[options.index("-o") + 1])
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix != ".elf":
        target.write_bytes(b"")
    elif "kernels" in target.parts:
        link(options, target)
    else:
        core = target.name.split(".")[0]
        built = sorted(FIRMWARE.glob(f"*/{core}/{core}.elf")) or sorted(FIRMWARE.glob("*/brisc/brisc.elf"))
        shutil.copy(built[0], target)
    if any(option.startswith("-M") for option in options):
        source = next(
            (option for option in options if Path(option).suffix in (".cc", ".cpp", ".S")), __file__
        )
        target.with_suffix(".d").write_text(f"{target}: {source}\n")


if __name__ == "__main__":
    main()
