"""Forked processes behave like those that `subprocess` starts."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from forked_python import can_fork

pytestmark = pytest.mark.usefixtures("forked_python")
LOOK = """
import json, os, sys
seen = sorted(name for name in sys.modules if name.split(".")[0] in ("torchport", "openvino", "transformers"))
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get("GIVEN"), sys.stdin.read(), os.getppid(), seen]))
print("to stderr", file=sys.stderr)
import atexit; atexit.register(print, "at the end")
sys.exit(7)
"""


def run(*words, **more):
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=False, timeout=60, **more
    )


def test_code_a_script_and_a_module_get_what_they_are_given(tmp_path, monkeypatch):
    monkeypatch.setenv("GIVEN", "a value")
    (tmp_path / "looks.py").write_text(LOOK)
    for words in (["-c", LOOK], [tmp_path / "looks.py"], ["-m", "looks"]):
        ran = run(*words, "one", "two words", input="typed", cwd=tmp_path)
        assert (ran.returncode, ran.stderr) == (7, "to stderr\n"), ran.stderr
        first, last = ran.stdout.splitlines()
        hook = ["torchport", "torchport.runtime", "torchport.runtime.hook", "torchport.version"]
        expected = [["one", "two words"], str(tmp_path), "a value", "typed", os.getpid(), hook]
        assert json.loads(first) == expected
        assert last == "at the end"


def test_it_is_a_fork():
    found = run("-c", "import sys; print('torch._dynamo' in sys.modules)").stdout
    assert found == f"{can_fork()}\n"


@pytest.mark.conformance
def test_it_is_a_fork_after_the_environment_has_changed(monkeypatch):
    monkeypatch.setenv("TORCH_SOMETHING", "changed")
    look = "import os, sys; print(os.environ['TORCH_SOMETHING'], 'torch._dynamo' in sys.modules)"
    assert run("-c", look).stdout == f"changed {can_fork()}\n"


@pytest.mark.conformance
def test_what_a_fork_cannot_be_is_a_process_of_its_own():
    look = "import sys; print('torch' in sys.modules)"
    assert run("-O", "-c", look).stdout == "False\n"
    assert run("-c", look, env=os.environ | {"PYTHONHASHSEED": "3"}).stdout == "False\n"
    assert subprocess.run(["echo", "x"], capture_output=True, check=True).stdout == b"x\n"


def test_an_error_a_signal_and_a_crash_are_the_process_s_end():
    ran = run("-c", "1 / 0")
    assert ran.returncode == 1
    assert ran.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert run("-c", "import os; os.abort()").returncode == -signal.SIGABRT
    assert run("-c", "import ctypes; ctypes.string_at(0)").returncode == -signal.SIGSEGV
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    assert os.getsid(process.pid) == process.pid
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not psutil.pid_exists(process.pid)


def test_a_process_that_takes_too_long_is_ended():
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.5, check=False)


def test_a_process_sees_what_torch_is_told_to_see():
    code = "import torch; print(torch.get_num_threads(), hasattr(torch.ops.torchport, 'island'))"
    assert run("-c", code, env=os.environ | {"OMP_NUM_THREADS": "2"}).stdout == "2 True\n"


def test_a_module_in_the_given_folders_is_found(tmp_path):
    (tmp_path / "given_here.py").write_text("value = 3")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    assert run("-c", "import given_here; print(given_here.value)", env=environment).stdout == "3\n"


def test_threads_may_start_them_at_the_same_time():
    with ThreadPoolExecutor(4) as pool:
        ran = list(pool.map(lambda code: run("-c", f"import sys; sys.exit({code})"), range(4)))
    assert [each.returncode for each in ran] == [0, 1, 2, 3]
