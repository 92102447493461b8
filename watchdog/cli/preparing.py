"""Commands that prepare servers elsewhere, once: `setup elasticsearch`, `setup kibana`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ..config import Config, parse
from ..documents import read
from ..ecs import RETENTION
from ..errors import ConfigError, Place, Problem
from ..system import RealHttp
from .output import AsJson, note, print_json

app = typer.Typer(
    help="Prepare a server elsewhere, once: each can be repeated, and says what it changed.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Configured = Annotated[
    Path | None, typer.Option("--config", help="Take hosts and credentials from this file.")
]
Username = Annotated[str | None, typer.Option(help="For basic authentication.")]
PasswordFile = Annotated[Path | None, typer.Option(help="File with the password.")]
ApiKeyFile = Annotated[Path | None, typer.Option(help="File with an encoded API key.")]
CaFile = Annotated[Path | None, typer.Option(help="Certificate authority of the server.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change; change nothing.")]
Print = Annotated[bool, typer.Option("--print", help="Print it; ask no server.")]


@app.command()
def elasticsearch(
    config: Configured = None,
    host: Annotated[
        str | None, typer.Option(help="Address of the cluster, such as https://es:9200.")
    ] = None,
    username: Username = None,
    password_file: PasswordFile = None,
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    retention: Annotated[str, typer.Option(help="How long events are kept: 30d, 12h.")] = RETENTION,
    ilm: Annotated[
        bool, typer.Option("--ilm", help="Retention by a lifecycle policy instead.")
    ] = False,
    create_api_key: Annotated[
        Path | None,
        typer.Option(help="Make a key with the daemon's rights and write it to this new file."),
    ] = None,
    dry_run: DryRun = False,
    print_only: Print = False,
    as_json: AsJson = False,
) -> None:
    """Put what the daemon's events need into Elasticsearch: template, data stream, retention.

    Can be repeated: what is there already stays as it is.

    Example: vllm-watchdog setup elasticsearch --config /etc/vllm-watchdog/config.yaml --dry-run
    """
    from ..setup import elasticsearch as wanted
    from ..setup.calls import Access, apply, credentials

    _check_retention(retention)
    things = wanted.wanted(retention=retention, ilm=ilm)
    if print_only:
        for line in wanted.as_text(things):
            print(line)
        return
    settings = _configured(config).outlets.elasticsearch
    hosts = (host,) if host else settings.hosts
    if not hosts:
        _missing(
            "--host", "no address", "give --host, or --config with outlets.elasticsearch.hosts"
        )
    if host:
        _check_address("--host", host)
    given = username is not None or api_key_file is not None
    headers = credentials(
        api_key_file if given else settings.api_key_file,
        username if given else settings.username,
        password_file if given else settings.password_file,
    )
    access = Access(str(hosts[0]), _http(ca_file or settings.ca_file), headers)
    version = wanted.server_version(access)
    note(f"Elasticsearch {version or '(version unknown)'} at {access.url}")
    results = []
    for what, state in apply(access, things, dry_run=dry_run):
        results.append({"what": what, "state": state})
        if not as_json:
            print(f"{state:14} {what}")
    if create_api_key is not None:
        results.append(_key(access, create_api_key, dry_run=dry_run, quiet=as_json))
    if as_json:
        print_json(results)


def _key(access: object, path: Path, *, dry_run: bool, quiet: bool) -> dict[str, str]:
    """Make the daemon's key in a new file that only its owner reads."""
    from ..setup.elasticsearch import create_key

    state = "would create"
    if path.exists():
        raise ConfigError(Problem(Place(str(path)), "is there already", "name a new file"))
    if not dry_run:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise ConfigError(Problem(Place(str(path)), f"{error.strerror}")) from error
        try:
            with os.fdopen(descriptor, "w") as stream:
                stream.write(create_key(access) + "\n")  # type: ignore[arg-type]
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        state = "created"
    if not quiet:
        print(f"{state:14} API key in {path}")
    return {"what": f"API key in {path}", "state": state}


@app.command()
def kibana(
    url: Annotated[str | None, typer.Option(help="Address of Kibana: https://kibana:5601.")] = None,
    space: Annotated[str, typer.Option(help="Kibana space.")] = "default",
    username: Username = None,
    password_file: PasswordFile = None,
    api_key_file: ApiKeyFile = None,
    ca_file: CaFile = None,
    dry_run: DryRun = False,
    print_only: Print = False,
    as_json: AsJson = False,
) -> None:
    """Put data views, saved searches and the dashboard into Kibana.

    Can be repeated: objects of the same name are replaced, others are left alone.

    Example: vllm-watchdog setup kibana --url https://kibana:5601 --api-key-file key
    """
    from ..setup import kibana as bringing
    from ..setup.calls import Access, credentials
    from ..setup.objects import ndjson

    if print_only:
        print(ndjson(), end="")
        return
    if url is None:
        _missing("--url", "no address", "give --url https://kibana:5601")
    _check_address("--url", str(url))
    headers = {**credentials(api_key_file, username, password_file), **bringing.HEADERS}
    access = Access(str(url), _http(ca_file), headers)
    states = bringing.present(access, space)
    changed = any(state != "unchanged" for state in states.values())
    if changed and not dry_run:
        bringing.bring(access, space)
        done = {"would create": "created", "would update": "updated"}
        states = {what: done.get(state, state) for what, state in states.items()}  # type: ignore[misc]
    if as_json:
        print_json([{"what": what, "state": state} for what, state in states.items()])
        return
    for what, state in states.items():
        print(f"{state:14} {what}")


def _configured(path: Path | None) -> Config:
    return Config() if path is None else parse(read(path, "configuration"), str(path))


def _check_retention(text: str) -> None:
    if not (text[:-1].isdigit() and text[-1:] in "dhm" and int(text[:-1]) > 0):
        _missing("--retention", f"{text!r} is no time", "write 90d, 12h or 30m")


def _check_address(option: str, address: str) -> None:
    if not address.startswith(("http://", "https://")):
        _missing(option, f"{address!r} is no address", f"write http://{address} or https://…")


def _missing(where: str, message: str, hint: str) -> None:
    raise ConfigError(Problem(Place(where), message, hint))


def _http(ca_file: Path | None) -> RealHttp:
    if ca_file is None:
        return RealHttp()
    if not ca_file.is_file():
        _missing(str(ca_file), "no such file", "name the certificate authority's PEM file")
    return RealHttp(verify=str(ca_file))
