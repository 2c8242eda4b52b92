"""From the arguments to an exit code: an error is one sentence, never a traceback."""

from __future__ import annotations

import codecs
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import typer

from tolfl.cli.output import notify
from tolfl.core.errors import sentence_and_status

#: typer bundles click, under a name that changed with its releases: the base class of its own exceptions is safe.
_ClickException = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")
_COMPLETING = "_TOLFL_COMPLETE"  #: set by the scripts of `tolfl --show-completion`
_STOPPED, _PIPE_CLOSED = 130, 141  #: as shells report SIGINT and SIGPIPE
#: What to write where a terminal has no such character.
_PLAINER = {"±": "+-", "\N{MULTIPLICATION SIGN}": "x", "…": "...", "\N{EN DASH}": "-", "→": "->", "≤": "<=", "≥": ">="}


def run(app: typer.Typer) -> int:
    """Run the command line and return its exit code."""
    _make_printing_safe()
    try:
        code = _invoke(app)
        sys.stdout.flush()  # here, where a closed pipe can still be handled
    except KeyboardInterrupt:
        _print_error("stopped")
        return _STOPPED
    except BrokenPipeError:
        # The reader of our output has closed it; a second error on closing would be noise.
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except SystemExit as error:  # rich ends the program by itself when a pipe is closed
        if isinstance(error.__context__, BrokenPipeError):
            return _PIPE_CLOSED
        raise
    except Exception as error:
        told = sentence_and_status(error)
        if told is None:
            raise
        _print_error(told[0])
        return told[1]
    return code


_command = cache(typer.main.get_command)


def _invoke(app: typer.Typer) -> int:
    command = _command(app)
    if _COMPLETING in os.environ:
        return int(command.main(prog_name="tolfl", standalone_mode=False) or 0)
    try:
        with command.make_context("tolfl", sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        if not isinstance(error, _ClickException):
            raise
        return _print_usage_error(error)
    return 0


def _print_usage_error(error: Exception) -> int:
    """Print the usage error and where the help is; return the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":  # its help has been shown
        return 2
    message = str(getattr(error, "format_message", error.__str__)()).strip()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tolfl"
    sentence = f"{message[:1].lower()}{message[1:]}".replace("Value error, ", "").rstrip(".")
    _print_error(f"{sentence}{' ' if sentence.endswith('?') else '; '}see {path} --help")
    return 2


def _print_error(sentence: str) -> None:
    with suppress(BrokenPipeError):
        notify(sentence)


def _make_printing_safe() -> None:
    """Make printing safe: unencodable characters are replaced, closed streams discard their text."""
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115  (until the end)
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    codecs.register_error("tolfl-plainer", _plainer)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="tolfl-plainer")


def _plainer(error: UnicodeError) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return b"".join(_plain(letter) for letter in error.object[error.start : error.end]), error.end


def _plain(letter: str) -> bytes:
    if "\udc80" <= letter <= "\udcff":  # a byte of a file name that is no letter: as it was
        return bytes([ord(letter) - 0xDC00])
    return _PLAINER.get(letter, "?").encode("ascii")
