"""What a configuration names outside itself, held against this machine: files, folders, programs.

What is there and cannot be used is an error; what is not there is a warning, as a configuration may
be checked elsewhere than on its node. It only looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..remediations.adapters import environment
from .config import Config, Service
from .errors import Place, Problem, SourceError
from .system import System

CHECKED = 64 * 1024  # bytes


def look(config: Config, system: System, file: str = "") -> list[Problem]:
    """What the configuration names and cannot be had here. ``file`` names the configuration."""
    problems: list[Problem] = []
    for where, path in _secrets(config):
        problems += _readable(system, where, path)
    for name, service in config.services.items():
        problems += _service(system, f"services.{name}", service)
    if not file:
        return problems
    return [
        Problem(Place(f"{file}: {p.place.file}"), p.message, p.hint, p.severity) for p in problems
    ]


def _secrets(config: Config) -> Iterator[tuple[str, Path]]:
    """The files with keys, tokens and certificates."""
    elastic, tls = config.outlets.elasticsearch, config.tls
    named = {
        "control.token_file": config.control.token_file,
        "tls.cert_file": tls.cert_file,
        "tls.key_file": tls.key_file,
        "tls.client_ca_file": tls.client_ca_file,
        "outlets.elasticsearch.api_key_file": elastic.api_key_file,
        "outlets.elasticsearch.password_file": elastic.password_file,
        "outlets.elasticsearch.ca_file": elastic.ca_file,
        **{f"services.{n}.api_key_file": s.api_key_file for n, s in config.services.items()},
    }
    for where, path in named.items():
        if path is not None:
            yield where, path


def _readable(system: System, where: str, path: Path) -> Iterator[Problem]:
    try:
        data = system.files.part(path, 0, CHECKED).data
    except FileNotFoundError:
        yield Problem(Place(where), f"{path}: is not there", severity="warning")
    except OSError as error:
        yield Problem(Place(where), f"{path}: {error.strerror or 'is not a regular file'}")
    else:
        if not data.strip():
            yield Problem(Place(where), f"{path}: is empty")


def _service(system: System, where: str, service: Service) -> Iterator[Problem]:
    for profile, path in service.profiles.items():
        yield from _profile(system, f"{where}.profiles.{profile}", path)
    for place, instance in ((where, service), (f"{where}.standby", service.standby)):
        command = instance.manager.command if instance and instance.manager else None
        if command is not None and system.runner.which(command[0]) is None:
            text = f"{command[0]}: no such program"
            yield Problem(Place(f"{place}.manager.command"), text, severity="warning")
    if service.front is not None:
        yield from _include(system, f"{where}.front.nginx", service.front.nginx)


def _profile(system: System, where: str, path: Path) -> Iterator[Problem]:
    found = list(_readable(system, where, path))
    yield from found
    if found:
        return
    try:
        environment.profile(system, path)
    except SourceError as error:
        yield Problem(Place(where), str(error))


def _include(system: System, where: str, path: Path) -> Iterator[Problem]:
    if not system.files.exists(path.parent):
        text, hint = f"{path.parent}: no such folder", "vllm-watchdog setup nginx"
        yield Problem(Place(where), text, hint, "warning")
        return
    try:
        system.files.followed(path)
    except OSError as error:
        yield Problem(Place(where), f"{path}: {error.strerror}", "make its target", "warning")
        return
    if system.files.exists(path):
        yield from (each for each in _readable(system, where, path) if "is empty" not in str(each))
