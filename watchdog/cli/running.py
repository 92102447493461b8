"""Commands that run the loop: run and record.

They only say what is asked for; the loop starts when the command line is out of the way, so that
its libraries do not stay in the daemon's memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..options import Options
from .inputs import ConfigFile


def run(
    config: ConfigFile = None,
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT of the listener; default 127.0.0.1:9710.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="State folder; default by the configuration.")
    ] = None,
    record_to: Annotated[
        Path | None,
        typer.Option(
            "--record",
            help="Also record inputs and decisions in this new folder; after a reload in FOLDER.1.",
        ),
    ] = None,
) -> Options:
    """Watch this node until told to stop.

    Without a configuration it finds cards and vLLM servers by itself and observes only. SIGTERM
    or Ctrl-C ends it, SIGHUP reloads the configuration. Then ask it: `status`, `alerts`, `query`.
    """
    return Options(config=config, listen=listen, state=state, record=record_to)


def record(
    folder: Annotated[Path, typer.Argument(help="Folder for the recording; it must be new.")],
    config: ConfigFile = None,
    duration: Annotated[
        str | None, typer.Option("--for", help="How long, such as 10m; default until Ctrl-C.")
    ] = None,
) -> Options:
    """Record what this node's collectors say, and what would be decided, for `replay`.

    Runs the loop itself, without listener, acts or outlets.
    """
    from ..config.durations import positive
    from ..errors import ConfigError, Place, Problem

    try:
        seconds = positive(duration) if duration is not None else None
    except ValueError as error:
        raise ConfigError(Problem(Place("--for"), str(error))) from error
    return Options(config=config, record=folder, duration=seconds, only_record=True)
