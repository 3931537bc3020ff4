"""Several threads can use torchport for the first time concurrently."""

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
