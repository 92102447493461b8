"""The command line: words in, exit status out. It decides nothing that a room below could decide.

Exit status: 0 fine; 1 a finding (check, collect, replay, test-rules only); 2 bad usage, bad
input, no daemon where one is needed: one line each, no traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ..errors import ConfigError, WatchdogError


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process with its status."""
    sys.exit(run(sys.argv[1:] if argv is None else list(argv)))


def run(argv: Sequence[str]) -> int:  # noqa: PLR0911 (one return per way to end)
    """Run one command and return its exit status; messages for a person go to standard error."""
    from click import exceptions as click
    from typer import Exit
    from typer.main import get_command

    from .app import app

    try:
        result = get_command(app).main(
            args=list(argv), prog_name="vllm-watchdog", standalone_mode=False
        )
    except Exit as end:
        return end.exit_code
    except click.Exit as end:
        return int(end.exit_code)
    except click.UsageError as error:
        error.show()
        return 2
    except click.ClickException as error:
        return _complain(error.format_message())
    except click.Abort:
        return 130
    except ConfigError as error:
        return _complain(*(str(problem) for problem in error.problems))
    except WatchdogError as error:
        return _complain(str(error))
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing is wrong and nobody is listening.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return result if isinstance(result, int) else 0


def _complain(*lines: str) -> int:
    for line in lines:
        print(f"vllm-watchdog: {line}", file=sys.stderr)
    return 2
