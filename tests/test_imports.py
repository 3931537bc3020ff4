"""What importing parts of torchport imports, also from several threads."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys, threading
import torchport

inside, main, raised = threading.Event(), threading.current_thread(), []

class Pause:
    # Finds nothing; lets the other thread proceed while this one is in the middle of importing the stage.
    def find_spec(self, name, path=None, target=None):
        if name.startswith("torchport.compiler.") and threading.current_thread() is main:
            if not inside.is_set():
                inside.set()
                other.join(1)

sys.meta_path.insert(0, Pause())

def use(name):
    try:
        getattr(torchport, name)
    except ImportError as error:
        raised.append(error)

def use_later():
    inside.wait()
    use("backend")

other = threading.Thread(target=use_later)
other.start()
use("compile")
other.join()
assert inside.is_set()
assert not raised, raised
"""


@pytest.mark.conformance  # test_hook.py has threads that name a backend first
def test_two_threads_may_import_it_at_once():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("forked_python")
def test_a_survey_leaves_capturing_to_its_workers():
    """The stages that capture take longer to import than a small model to survey."""
    code = (
        "import sys, torchport\n"
        "from torchport.survey import run_survey\n"
        "print([name for name in ('torchport.capture', 'torchport.analysis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
