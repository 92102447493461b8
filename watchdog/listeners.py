"""Where the daemon is asked: the HTTP listener, the control socket, and who may do what at each.

Builds and ends them; answers nothing itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .api import control, webhook
from .api.control import Commands
from .api.doors import Doors, Rate, Token
from .api.routes import Routes
from .api.server import Server
from .api.unix import UnixServer, places
from .api.webhook import Webhook
from .config import Config
from .config.models import Tls
from .daemon import Daemon, Log
from .desk import DaemonDesk
from .errors import ConfigError, Place, Problem
from .system import hostname
from .views import DaemonViews

if TYPE_CHECKING:
    import ssl

WRONG = (10, 0.2)  # wrong tokens in a row, and a second in the long run
BODIES = (60, 2.0)  # webhook bodies likewise


class Listeners:
    """All that listens of one daemon."""

    def __init__(self, daemon: Daemon, log: Log) -> None:
        """Bind the listener. Raises ConfigError when its address or its TLS cannot be had."""
        self._daemon, self._log = daemon, log
        config, clock = daemon.loaded.config, daemon.system.clock
        self._routes = Routes(DaemonViews(daemon))
        self._doors = _doors(daemon, config)
        tls = _tls(config.tls)
        self._http = Server(config.listen, self._routes, clock, self._report, tls, self._doors)
        self._unix: UnixServer | None = None

    def start(self, state: Path) -> None:
        """Answer from now on. Without a control socket the daemon runs on, and says so."""
        self._unix = self._control_socket(state)
        if self._unix is not None:
            self._unix.start()
        self._http.start()

    def stop(self) -> None:
        """End; requests under way are let go of."""
        for server in (self._http, self._unix):
            if server is not None:
                server.stop()

    def _report(self, fault: str) -> None:
        self._log(fault, level="error")

    def _control_socket(self, state: Path) -> UnixServer | None:
        clock, files = self._daemon.system.clock, self._daemon.system.files
        doors: Doors = {control.PATH: self._doors[control.PATH]}
        wanted = places(state, os.environ, os.geteuid())
        for path in wanted:
            try:
                server = UnixServer(path, self._routes, clock, self._report, doors, files)
            except OSError as error:
                reason = error.strerror or str(error)
                self._log(f"no control socket at {path}: {reason}", level="warning")
                continue
            if path != wanted[0]:
                self._log("the control socket lies elsewhere", path=str(path))
            return server
        return None


def _doors(daemon: Daemon, config: Config) -> Doors:
    clock, desk = daemon.system.clock, DaemonDesk(daemon)
    token = Token(lambda: daemon.loaded.config.control.token_file, daemon.system.files)
    wrong = Rate(clock, *WRONG)
    host = hostname()
    return {
        control.PATH: Commands(desk, token, wrong),
        webhook.PATH: Webhook(
            desk,
            token,
            Rate(clock, *BODIES),
            wrong,
            {host, host.partition(".")[0], daemon.labels["instance"]},
            certificates=config.tls.client_ca_file is not None,
        ),
    }


def _tls(tls: Tls) -> ssl.SSLContext | None:
    """The listener's TLS, or None. Raises ConfigError for files that cannot be used."""
    if tls.cert_file is None or tls.key_file is None:
        return None
    import ssl as library

    context = library.SSLContext(library.PROTOCOL_TLS_SERVER)
    file = tls.cert_file
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
        if tls.client_ca_file is not None:
            file = tls.client_ca_file
            context.load_verify_locations(file)
            context.verify_mode = library.CERT_OPTIONAL  # a scraper shows none
    except OSError as error:  # ssl.SSLError is one
        reason = error.strerror or str(error)
        raise ConfigError(Problem(Place("tls"), f"{file}: {reason}")) from error
    return context
