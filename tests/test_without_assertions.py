"""What tests run without assertions has none."""

import subprocess
import sys

import pytest

from without_assertions import PRELUDE


@pytest.mark.usefixtures("forked_python")
def test_the_package_is_imported_without_its_assertions_and_others_with_theirs(tmp_path):
    for name in ("torchport", "other"):
        (tmp_path / f"{name}.py").write_text(f"assert False, 'of {name}'\nprint('{name} is imported')")
    command = [sys.executable, "-c", f"{PRELUDE}\nimport torchport, other"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "torchport is imported\n"
    assert done.stderr.splitlines()[-1] == "AssertionError: of other"
