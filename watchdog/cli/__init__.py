"""The command line: words in, exit status out. It decides nothing that a room below could decide.

Exit status: 0 fine; 1 a finding (check, collect, replay, test-rules and test-incidents
only); 2 bad usage, bad input, no daemon where one is needed: one line each, no traceback.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import ConfigError, WatchdogError
from ..options import Options


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process with its status."""
    sys.exit(run(sys.argv[1:] if argv is None else list(argv)))


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit status; messages for a person go to standard error."""
    _streams()
    try:
        result = _command(argv)
        sys.stdout.flush()
        return _start(result) if isinstance(result, Options) else result
    except ConfigError as error:
        return _complain(*(str(problem) for problem in error.problems))
    except WatchdogError as error:
        return _complain(str(error))
    except (BrokenPipeError, SystemExit):  # the latter is the libraries' way to say the same
        # The reader of our output went away (`| head`): nothing is wrong and nobody is listening.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # what reads inputs has told its own: this is the way out
        return _complain(f"cannot write the answer: {error.strerror or error}")
    except KeyboardInterrupt:
        return 130


def _streams() -> None:
    """Closed streams swallow; characters that a terminal lacks are written as escapes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _command(argv: Sequence[str]) -> int | Options:
    """Run one command; the loop is not run here but asked for."""
    import typer
    from typer.main import get_command

    from .app import app

    usage_error: Any = typer.BadParameter.__mro__[1]  # click's own, wherever typer carries it
    try:
        result = get_command(app).main(
            args=list(argv), prog_name="vllm-watchdog", standalone_mode=False
        )
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        return 130
    except usage_error as error:
        return _complain(_usage(error))
    return result if isinstance(result, int | Options) else 0


def _usage(error: Any) -> str:
    """One line: what is wrong, and where the right usage is told."""
    path = error.ctx.command_path if error.ctx else "vllm-watchdog"
    command = path.partition(" ")[2]
    text = " ".join(error.format_message().split()).rstrip(".")
    said = text[:1].lower() + text[1:]
    return (
        f"{command}: {said} (see `{path} --help`)" if command else f"{said} (see `{path} --help`)"
    )


def _start(options: Options) -> int:
    """Run the loop, with the command line's own modules and libraries out of memory."""
    _unload()
    from ..service import serve

    if options.only_record and sys.stderr.isatty():  # a program knows what it asked for
        lasts = "" if options.duration is None else f" for {options.duration:g} s"
        shows = f"`vllm-watchdog replay {shlex.quote(str(options.record))}` shows it"
        _say(f"recording{lasts}; Ctrl-C ends it, {shows}")
    return serve(options)


def _unload() -> None:
    for name in list(sys.modules):
        if name.startswith(f"{__name__}.") or name.partition(".")[0] in _LIBRARIES:
            del sys.modules[name]
            globals().pop(name.rpartition(".")[2], None)
    gc.collect()


_LIBRARIES = frozenset({"typer", "click", "rich", "shellingham"})


def _complain(*lines: str) -> int:
    _say(*lines)
    return 2


def _say(*lines: str) -> None:
    """To a person's terminal: what a message quotes may hold anything."""
    with contextlib.suppress(OSError):
        for line in lines:
            print(f"vllm-watchdog: {_harmless(line)}", file=sys.stderr)


def _harmless(line: str) -> str:
    if line.isprintable():
        return line
    from .output import visible

    return visible(line)
