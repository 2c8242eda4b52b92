"""A newcomer's first hour: typos, wrong folders, narrow terminals, closed pipes. One sentence each, no traceback."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate.commands import commands, examples
from tests.cli.conftest import Command, wait_for

TINY = ("--data", "blobs", "-n", "4", "-k", "2", "--rounds", "2", "--samples-per-device", "20")
TOLFL = (sys.executable, "-c", "from tolfl.cli import main; main()")
COMMANDS = {
    name.removeprefix("tolfl "): command for name, command in commands().items() if not hasattr(command, "commands")
}
#: What is in every sentence about a mistake: never a traceback, and always "tolfl: ".
TRACEBACK = "Traceback"


def shell(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in a folder, with `tolfl` as a user has it."""
    program = " ".join(map(shlex.quote, TOLFL))
    return subprocess.run(
        ["bash", "-c", f'tolfl() {{ {program} "$@"; }}\n{script}'],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=False,
        capture_output=True,
        timeout=100,
    )


def test_letters_of_any_language_are_fine_in_a_path(tolfl: Command, tmp_path: Path) -> None:
    code, out, _ = tolfl("simulate", *TINY, "--out", "größe/ünï code/走る")

    assert code == 0
    assert "run directory: größe/ünï code/走る" in out
    assert (tmp_path / "größe" / "ünï code" / "走る" / "summary.json").is_file()


@pytest.mark.parametrize("command", ["simulate --rounds 2", "data describe", "compare --schemes fl --rounds 2"])
def test_a_table_of_three_sites_is_a_fleet_of_three(tolfl: Command, tmp_path: Path, command: str) -> None:
    rows = [f"{site},{row % 7},{row % 11},{'odd' if row == 9 else 'normal'}" for row in range(30) for site in "abc"]
    (tmp_path / "readings.csv").write_text("\n".join(["site,temp,power,state", *rows]) + "\n")
    where = ("readings.csv",) if command == "data describe" else ("--data", "readings.csv")
    columns = ("--device-column", "site", "--label-column", "state")
    code, out, err = tolfl(*command.split(), *where, *columns)
    too_many, _, refused = tolfl(*command.split(), *where, *columns, "--devices", "4")

    assert code == 0, err
    assert err.startswith("tolfl: 3 devices, as readings.csv has")
    assert "3 devices" in out or "device 2" in out
    assert too_many == 2
    assert "the data have 3 owners; use at most 3 devices" in refused


# -- terminals and pipes --------------------------------------------------------------------------------------------


def test_the_help_of_every_command_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, tolfl: Command) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for name in ["", "data", "enroll", *COMMANDS]:
        code, out, _ = tolfl(*name.split(), "--help")

        assert code == 0
        assert max(map(len, out.splitlines())) <= 60, name
        assert "\x1b" not in out


def on_terminal(arguments: list[str], folder: Path, columns: int, **environment: str) -> str:
    """Return what a command shows on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": str(columns), "LINES": "40", "TERM": "xterm-256color", **environment}
    base = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen(
        [*TOLFL, *arguments], cwd=folder, env={**base, **size}, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                block = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not block:
                break
            shown += block
        process.wait(timeout=100)
    os.close(ours)
    return shown.decode()


def test_tables_fit_a_narrow_terminal(tmp_path: Path) -> None:
    shown = on_terminal(["data", "list"], tmp_path, 60, NO_COLOR="1")

    assert "\x1b[3" not in shown  # no colour
    plain = re.sub(r"\x1b\[\d*m|\r", "", shown)  # bold letters take no place
    assert max(map(len, plain.splitlines())) <= 60
    assert "cifar-100" in plain


def test_there_is_colour_on_a_terminal_that_has_it(tmp_path: Path) -> None:
    assert "\x1b[3" in on_terminal(["doctor"], tmp_path, 80)


@pytest.mark.parametrize("typed", ["data list", "simulate --help"])
def test_a_pipe_that_is_closed_ends_a_command_in_silence(tmp_path: Path, typed: str) -> None:
    # The reader is gone before the first line: `head` closes the pipe when it has seen enough, sooner or later.
    done = shell(f"{{ tolfl {typed}; echo $? >&3; }} 3>code | exec true; cat code", tmp_path)

    assert done.stderr == b""
    assert done.stdout.split() in ([b"141"], [b"0"])


def test_closed_streams_are_no_reason_to_fail(tmp_path: Path) -> None:
    done = shell("tolfl data list <&- >&-; echo $?; tolfl simulat 2>&-; echo $?; tolfl data list >/dev/full", tmp_path)

    assert done.stdout.split() == [b"0", b"2"]
    assert done.returncode == 1
    assert done.stderr.startswith(b"tolfl: ")
    assert done.stderr.count(b"\n") == 1


def test_a_terminal_that_knows_ascii_only_gets_plainer_letters(tolfl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    folder = os.fsencode("größe").decode("ascii", "surrogateescape")  # as Python reads it there
    monkeypatch.setattr(sys, "stdout", shown)
    code, _, err = tolfl("compare", *TINY[:-2], "--schemes", "fl", "--repetitions", "2", "--out", folder)
    written = shown.buffer.getvalue()

    assert (code, err) == (0, "")
    assert b" +-" in written
    assert "größe".encode() in written  # the name of the folder, byte for byte
    assert max(written.replace("größe".encode(), b"")) < 128


def test_ctrl_c_is_one_sentence(tmp_path: Path) -> None:
    arguments = ["simulate", "--data", "blobs", "--rounds", "100000", "--out", "long"]
    records = tmp_path / "long" / "records.jsonl"
    with subprocess.Popen(
        [*TOLFL, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(process, lambda: records.exists() and records.stat().st_size > 0)  # the first rounds are done
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert TRACEBACK not in err
    assert err.startswith("tolfl: stopped")


# -- help, examples, completion -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_examples_of_itself_that_can_be_understood(name: str) -> None:
    assert examples(COMMANDS[name])
    assert all(f"tolfl {name}" in example for example in examples(COMMANDS[name]))
    for example in examples(COMMANDS[name]):
        for words in called(example):
            # Every command and flag is known, every value is of the right kind; nothing is started.
            command, rest = commands()["tolfl"], list(words)
            while hasattr(command, "commands"):
                command = command.commands[rest.pop(0)]
            command.make_context(name, rest)


def called(example: str) -> list[list[str]]:
    """Return the words after each `tolfl` in a line for a shell."""
    lexer = shlex.shlex(example.replace('"$(', "").replace(')"', ""), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word in (";", "|", "&&"):
            parts.append([])
        elif word == ">":
            parts.append([">"])
        else:
            parts[-1].append(word)
    found = [part[part.index("tolfl") + 1 :] for part in parts if "tolfl" in part]
    assert found
    return found


def test_a_flag_means_the_same_kind_of_thing_everywhere() -> None:
    # Formats differ; `export --data` is a file, never a data set; `data describe --columns` writes what others take.
    own_words = {"--format", "--data", "--columns"}
    kinds: dict[str, set[tuple[str, str]]] = {}
    for name, command in COMMANDS.items():
        for parameter in command.params:
            options = [option for option in parameter.opts if option.startswith("-")]
            if options and not parameter.hidden and name != "plan":  # plan takes several k and bandwidths
                short = ",".join(option for option in options if not option.startswith("--"))
                kind = str(parameter.type_descriptor.annotation)
                kinds.setdefault(max(options, key=len), set()).add((kind, short))

    assert len(kinds) > 60
    assert {flag: kind for flag, kind in kinds.items() if len(kind) > 1 and flag not in own_words} == {}


def test_bash_completes_commands_flags_and_values(tmp_path: Path) -> None:
    script = """
    eval "$(tolfl --show-completion)"
    complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tolfl_completion tolfl; echo "${COMPREPLY[*]}"; }
    complete_line tolfl sim
    complete_line tolfl simulate --sch
    complete_line tolfl data list --format ''
    """
    # bash starts `env ... tolfl`, so that here it must be a program.
    program = tmp_path / "tolfl"
    program.write_text(f"#!{sys.executable}\nfrom tolfl.cli import main\nmain()\n")
    program.chmod(0o755)
    done = shell(f"unset -f tolfl\n{script}", tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")

    assert done.stderr == b""
    assert done.stdout.decode().split() == ["simulate", "--scheme", "table", "json"]


def test_commands_start_without_what_is_slow_to_import() -> None:
    # What that costs in seconds is for `python -m benchmarks.start_up`: here it would depend on what runs beside.
    names = ["", *COMMANDS]
    program = (
        "import sys\nfrom tolfl.cli import main\n"
        f"for name in {names!r}:\n"
        "    sys.argv = ['tolfl', *name.split(), '--help']\n"
        "    try:\n        main()\n    except SystemExit:\n        pass\n"
        "slow = {'torch', 'scipy', 'sklearn', 'matplotlib', 'numpy', 'pyarrow'} & set(sys.modules)\n"
        "print(sorted(slow), file=sys.stderr)\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert shown.stderr.strip() == "[]"
    assert shown.stdout.count("Usage") == len(names)
