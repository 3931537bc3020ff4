"""The entry point: help, usage errors, failures and exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from torchport.cli import main as main_module
from torchport.cli.main import cli
from torchport.errors import TorchportError
from torchport.version import __version__

PROGRAM = [sys.executable, "-c", "from torchport.cli.main import main; main()"]
COMMANDS = [
    "analyze", "explain", "compile", "run", "inspect", "codegen", "quantize", "generate", "profile", "bench",
    "survey", "report", "targets", "doctor", "new-target",
]  # fmt: skip


def start(*arguments, **more):
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False, **more
    )


@pytest.fixture
def failing(monkeypatch):
    """Makes `torchport report` raise an error."""

    def install(error):
        def fail(*args):
            raise error

        monkeypatch.setattr("torchport.cli.report.read_report", fail)

    return install


def test_the_help_lists_every_command_with_an_example(capsys, command):
    assert command("--help").code == 0
    text = capsys.readouterr().out
    assert list(cli.commands) == COMMANDS
    for name in COMMANDS:
        assert f"\n  {name} " in text


@pytest.mark.parametrize("name", COMMANDS)
def test_each_commands_help_has_examples_and_the_shared_flags(capsys, command, name):
    assert command(name, "--help").code == 0
    text = capsys.readouterr().out
    assert f"    torchport {name}" in text.split("Examples:")[1]
    assert "--json" in text
    assert "--debug" in text
    assert "In Python: torchport." in " ".join(text.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_python_call_that_a_help_names_exists(name):
    import torchport

    text = " ".join(cli.commands[name].help.split())
    path = text.split("In Python: torchport.")[1].split()[0].strip(".")
    found = torchport
    for part in path.split("."):
        found = getattr(found, part)
    assert callable(found)


def test_the_version(capsys, command):
    assert command("--version").code == 0
    assert capsys.readouterr().out == f"torchport, version {__version__}\n"


def test_no_arguments_show_the_help_and_fail(capsys, command):
    assert command().code == 2
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["bnech"], "torchport: no command 'bnech': did you mean 'bench'? (see `torchport --help`)"),
        (["report", "--htlm", "x"], "--html"),
        (["report"], "torchport report: Missing argument 'DIR' (see `torchport report --help`)"),
        (["bench", "m", "--runs", "0"], "0 is not in the range"),
    ],
)
def test_a_usage_error_is_one_line_and_suggests_the_nearest_name(command, line, message):
    ran = command(*line)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_a_usage_error_is_json_with_the_json_flag(command):
    ran = command("bnech", "--json")
    assert (ran.code, ran.err) == (2, "")
    assert ran.json["error"] == "UsageError"
    assert "did you mean 'bench'" in ran.json["what"]


def test_a_refusal_is_one_line(command, failing):
    failing(TorchportError("no such thing", where="here", remedy="do that"))
    ran = command("report", "x")
    assert (ran.code, ran.out, ran.err) == (2, "", "here: no such thing: do that\n")


def test_a_refusal_is_json_with_the_json_flag(command, failing):
    failing(TorchportError("no such thing", where="here", remedy="do that"))
    ran = command("report", "x", "--json")
    assert (ran.code, ran.err) == (2, "")
    assert ran.json == {
        "error": "TorchportError",
        "what": "no such thing",
        "where": "here",
        "remedy": "do that",
    }


def test_an_unexpected_error_is_one_line_and_advice_to_use_debug(command, failing):
    failing(ZeroDivisionError("division by\nzero [red]"))
    ran = command("report", "x")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "ZeroDivisionError: division by\nrun with --debug for the traceback\n"


def test_debug_shows_the_traceback(command, failing):
    failing(ZeroDivisionError("division"))
    ran = command("report", "x", "--debug")
    assert ran.code == 2
    assert "Traceback" in ran.err
    assert "--debug" not in ran.err.splitlines()[-1]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_has_its_own_code(command, failing, error):
    failing(error)
    ran = command("report", "x")
    assert (ran.code, ran.out) == (130, "")
    assert ran.err.strip() == "interrupted"


def test_help_and_report_import_no_torch(tmp_path):
    code = (
        "import sys; from torchport.cli.main import run; from torchport.cli.output import Output\n"
        "from rich.console import Console\n"
        "output = Output(Console(), Console())\n"
        f"run(['--help'], output); run(['report', {str(tmp_path)!r}], output)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.usefixtures("forked_python")
def test_stdout_is_reserved_for_the_result(models, tmp_path):
    """Output printed by a library, from Python or from C, does not end up in our JSON."""
    noisy = tmp_path / "noisy.py"
    noisy.write_text(
        "import os\nfrom models import load as load_quietly\n"
        "def load():\n    print('python')\n    os.write(1, b'descriptor')\n    os.system('echo child')\n"
        "    return load_quietly()\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ran = start(
        "explain", f"{noisy}::load", "--target", "host", "--json", env=os.environ | {"PYTHONPATH": path}
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["ops_remain"] == 0
    for noise in ("python", "descriptor", "child"):
        assert noise in ran.stderr


def test_the_process_exits_with_the_commands_code():
    ran = start("report", "no-such-directory")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("no-such-directory: there is no such directory")
    assert "Traceback" not in ran.stderr


def test_help_is_written_to_stdout():
    ran = start("report", "--help")
    assert ran.returncode == 0
    assert "Examples:" in ran.stdout


def test_a_reader_that_stops_reading_is_not_an_error(tmp_path):
    from torchport.records import BenchRecord, write_record

    for i in range(400):
        write_record(BenchRecord(f"model{i}", "host", "ok"), tmp_path / f"{i}.json")
    line = " ".join(
        [f"'{PROGRAM[0]}'", PROGRAM[1], f"'{PROGRAM[2]}'", "report", f"'{tmp_path}'", "| head -n 1"]
    )
    ran = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("| Model")
    assert ran.stderr == ""


def test_no_command_stands_outside_its_own_file():
    folder = Path(main_module.__file__).parent
    assert all((folder / f"{name.replace('-', '_')}.py").exists() for name in COMMANDS)


@pytest.mark.parametrize(
    "line",
    [
        ["report", "."],
        ["report", ".", "--json"],
        ["report", "absent", "--json"],
        ["targets"],
        ["bnech", "--json"],
        ["--help"],
        ["report", "--help"],
        ["--version"],
    ],
)
def test_a_full_standard_output_is_one_line_and_a_failure(tmp_path, line):
    from torchport.records import BenchRecord, write_record

    for number in range(100):  # more than a buffer holds
        write_record(BenchRecord(f"model{number}", "host", "ok"), tmp_path / f"{number}.json")
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [*PROGRAM, *line], stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path
        )
    assert ran.returncode == 2
    assert ran.stderr == "standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    "line",
    [["--help"], pytest.param(["targets"], marks=pytest.mark.conformance), ["report", ".", "--json"]],
)
def test_a_closed_pipe_ends_quietly(tmp_path, line):
    from torchport.records import BenchRecord, write_record

    for number in range(100):
        write_record(BenchRecord(f"model{number}", "host", "ok"), tmp_path / f"{number}.json")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        ran = subprocess.run(
            [*PROGRAM, *line], stdout=closed, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path
        )
        assert (ran.returncode, ran.stderr) == (0, "")


def test_a_full_standard_error_does_not_change_the_result():
    with open("/dev/full", "w") as full:
        ran = subprocess.run([*PROGRAM, "report", "absent"], stdout=subprocess.PIPE, stderr=full, check=False)
    assert (ran.returncode, ran.stdout) == (2, b"")


def test_python_m_torchport_is_the_same_command():
    ran = subprocess.run([sys.executable, "-m", "torchport", "--version"], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout.decode()) == (0, f"torchport, version {__version__}\n")


def test_a_model_that_exits_the_process_is_an_error(command, tmp_path):
    file = tmp_path / "model.py"
    file.write_text(
        "import sys, torch\n\n\nclass Ends(torch.nn.Module):\n"
        "    def forward(self, x):\n        sys.exit(0)\n\n\n"
        "def load():\n    return Ends(), (torch.ones(2),)\n"
    )
    ran = command("compile", f"{file}::load", "--target", "host", "--json")
    assert ran.code == 2
    assert ran.json["what"] == "SystemExit: 0"


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_numbers_must_be_finite(command, tmp_path, number):
    ran = command("report", tmp_path, "--timeout", number)
    assert ran.code == 2
    assert "--timeout" in ran.err
