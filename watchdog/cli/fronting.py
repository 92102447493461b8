"""`setup nginx`: make an nginx of this node the front of a service, once or again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError, NotSupported, Place, Problem, SourceError, WatchdogError
from .output import AsJson, note, print_json

if TYPE_CHECKING:
    from ..config import Service
    from ..system import System

TIMEOUT = 30.0  # seconds for nginx to read its whole configuration
READABLE = 0o644


def nginx(
    config: Annotated[Path, typer.Option("--config", "-c", help="Configuration file (YAML).")],
    service: Annotated[
        str | None, typer.Argument(help="Service; may be left out where one has a front.")
    ] = None,
    server: Annotated[
        Path | None,
        typer.Option(
            help="Write the server here; default /etc/nginx/conf.d/vllm-watchdog-NAME.conf."
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="Certificate chain, where users come in by https.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's private key.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that were changed by hand, too.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change; change nothing.")
    ] = False,
    print_only: Annotated[bool, typer.Option("--print", help="Print the server only.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make nginx the front of a service: the switch to a standby, cache-only mode, shedding.

    Writes the server, the njs script and the include that the daemon changes later, and has nginx
    test all of it; what fails is taken back. nginx is not reloaded. Can be repeated.

    Example: vllm-watchdog setup nginx --config /etc/vllm-watchdog/config.yaml --dry-run
    """
    from ..config import load
    from ..setup import nginx as texts
    from ..system import System

    name, chosen = _chosen(load(config).services, service)
    if (tls_certificate is None) != (tls_key is None):
        raise ConfigError(Problem(Place("--tls-key"), "certificate and key belong together"))
    tls = texts.Tls(tls_certificate, tls_key) if tls_certificate and tls_key else None
    text = texts.server_text(name, chosen, tls)
    if print_only:
        print(text, end="")
        return
    system = System()
    path = server or texts.server_path(name)
    states = _states(system, name, chosen, {path: text}, force=force)
    if not dry_run:
        _put(system, chosen, path, {p: t for p, (_, t) in states.items()})
    said = {str(p): state if not dry_run else _would(state) for p, (state, _) in states.items()}
    if as_json:
        print_json([{"what": what, "state": state} for what, state in said.items()])
    else:
        for what, state in said.items():
            print(f"{state:14} {what}")


State = str


def _chosen(services: Mapping[str, Service], name: str | None) -> tuple[str, Service]:
    fronted = {key: each for key, each in services.items() if each.front is not None}
    if name is None and len(fronted) == 1:
        return next(iter(fronted.items()))
    if name in fronted:
        return name, fronted[name]
    known = ", ".join(sorted(fronted)) or "none"
    if name is None:
        what = "name one of them" if fronted else "no service has a front"
        hint = f"services with a front: {known}" if fronted else "front: {nginx: FILE, url: URL}"
        raise ConfigError(Problem(Place("SERVICE"), what, hint))
    what = "has no front" if name in services else "no such service"
    raise ConfigError(Problem(Place(f"services.{name}"), what, f"services with a front: {known}"))


def _states(
    system: System, name: str, service: Service, server: Mapping[Path, str], *, force: bool
) -> dict[Path, tuple[State, str]]:
    """What becomes of each file, and its wanted text."""
    from ..setup import nginx as texts

    front = service.front
    assert front is not None
    wanted = dict(server)
    if front.njs:
        wanted[texts.script_path(service)] = texts.script_text()
    states: dict[Path, tuple[State, str]] = {}
    for path, text in wanted.items():
        there = _text(system, path)
        if there is None:
            states[path] = "created", text
        elif there == text:
            states[path] = "unchanged", text
        elif force or texts.untouched(there):
            states[path] = "updated", text
        else:
            hint = "move it away, or --force replaces it"
            raise ConfigError(Problem(Place(str(path)), "was not written by us as it is", hint))
    there = _text(system, front.nginx)
    first = texts.first_include(name, service)
    states[front.nginx] = ("created", first) if there is None else ("unchanged", there)
    if there is not None and texts.points(there, service) == "unknown":
        note(f"{front.nginx}: points at none of the service's servers; the next switch mends that")
    return states


def _put(system: System, service: Service, server: Path, wanted: Mapping[Path, str]) -> None:
    """Write what differs and have nginx test it; all is taken back where that fails."""
    before = {path: _text(system, path) for path in wanted}
    changed = [path for path in wanted if before[path] != wanted[path]]
    try:
        for path in changed:
            _write(system, path, wanted[path])
        _test(system, service, server)
    except WatchdogError:
        for path in changed:
            earlier = before[path]
            if earlier is None:
                system.files.remove(path)
            else:
                _write(system, path, earlier)
        raise
    if changed:
        assert service.front is not None
        command = " ".join(service.front.reload or (*service.front.command, "-s", "reload"))
        note(f"now load it: {command}")


def _test(system: System, service: Service, server: Path) -> None:
    """Let nginx read everything. Raises ConfigError with its own line."""
    front = service.front
    assert front is not None
    argv = (*front.command, "-T")
    try:
        ended = system.runner.run(argv, timeout=TIMEOUT)
    except (NotSupported, OSError) as error:
        hint = "install nginx, name it by front.command, or use --print"
        raise ConfigError(Problem(Place(argv[0]), f"{error}", hint)) from error
    if ended.code != 0:
        raise SourceError(_complaint(ended.stderr.decode("utf-8", "replace"), argv[0]))
    if f"# configuration file {server}:" not in ended.text:
        note(f"nginx does not read {server}: include it in the http block of its configuration")
    if "worker_shutdown_timeout" not in ended.text.replace("#     worker_shutdown", ""):
        note(
            "worker_shutdown_timeout is not set: put `worker_shutdown_timeout 1h;` at the top of "
            "nginx.conf, or old workers live as long as their last stream"
        )


def _complaint(text: str, program: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = next((each for each in lines if "[emerg]" in each), lines[-1] if lines else "failed")
    hint = ""
    if "js_import" in line or "js_set" in line:
        hint = (
            " (install nginx's njs module, Debian: libnginx-mod-http-js; or set front.njs: false)"
        )
    return f"{program} does not take it, so nothing was changed: {line}{hint}"


def _text(system: System, path: Path) -> str | None:
    try:
        return system.files.text(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(Problem(Place(str(path)), f"cannot be read: {error.strerror}")) from error


def _write(system: System, path: Path, text: str) -> None:
    try:
        system.files.make_folder(path.parent, 0o755)
        system.files.write(system.files.followed(path), text.encode(), READABLE)
    except OSError as error:
        problem = Problem(Place(str(path)), f"cannot be written: {error.strerror}")
        raise ConfigError(problem) from error


def _would(state: State) -> State:
    return {"created": "would create", "updated": "would update"}.get(state, state)
