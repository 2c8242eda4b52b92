"""From the words that were typed to an exit code: what is wrong is one sentence, never a traceback."""

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

#: typer has click inside, under a name that changed with its releases: its own exceptions know their family.
_ClickException = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")
_COMPLETING = "_TOLFL_COMPLETE"  #: set by the scripts of `tolfl --show-completion`
_STOPPED, _PIPE_CLOSED = 130, 141  #: as shells report SIGINT and SIGPIPE
#: What to write where a terminal has no such character.
_PLAINER = {"±": "+-", "\N{MULTIPLICATION SIGN}": "x", "…": "...", "\N{EN DASH}": "-", "→": "->", "≤": "<=", "≥": ">="}


def run(app: typer.Typer) -> int:
    """Run the command line and return its exit code."""
    _never_fail_to_print()
    try:
        code = _invoke(app)
        sys.stdout.flush()  # here, where a closed pipe is still an answer and not an accident
    except KeyboardInterrupt:
        _say("stopped")
        return _STOPPED
    except BrokenPipeError:
        # Whoever read our output has had enough; a second error on closing it would help nobody.
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
        _say(told[0])
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
        return _asked_the_wrong_way(error)
    return 0


def _asked_the_wrong_way(error: Exception) -> int:
    """Say what cannot be understood, and who can help."""
    if type(error).__name__ == "NoArgsIsHelpError":  # its help has been shown
        return 2
    message = str(getattr(error, "format_message", error.__str__)()).strip()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tolfl"
    sentence = f"{message[:1].lower()}{message[1:]}".replace("Value error, ", "").rstrip(".")
    _say(f"{sentence}{' ' if sentence.endswith('?') else '; '}see {path} --help")
    return 2


def _say(sentence: str) -> None:
    with suppress(BrokenPipeError):
        notify(sentence)


def _never_fail_to_print() -> None:
    """Let terminals that know few characters show others as well as they can; what is closed swallows all."""
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
