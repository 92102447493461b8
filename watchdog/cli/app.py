"""The list of commands, in the order in which a newcomer needs them."""

from __future__ import annotations

import typer

from . import (
    asking,
    controlling,
    explaining,
    fronting,
    inputs,
    judging,
    preparing,
    remembering,
    replaying,
    reporting,
    running,
)

app = typer.Typer(
    help=(
        "Watch this node's accelerators, links and vLLM servers; judge by Prometheus rules.\n\n"
        "Start with `vllm-watchdog run`: it needs no configuration, no root and no accelerator. "
        "Then, in another terminal: `status`, `alerts`, `query 'service_up'`."
    ),
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(running.run)
app.command()(asking.status)
app.command()(asking.alerts)
app.command()(asking.query)
app.command()(remembering.history)
app.command()(reporting.report)
app.command()(inputs.discover)
app.command()(inputs.check)
app.command()(inputs.collect)
app.command()(inputs.classify)
app.command(context_settings={"ignore_unknown_options": True})(explaining.faults)
app.command()(running.record)
app.command()(replaying.replay)
app.command("test-rules")(replaying.test_rules)
app.command("test-incidents")(judging.test_incidents)
app.command()(judging.explain)
app.command()(controlling.pause)
app.command()(controlling.resume)
app.command()(controlling.approve)
app.command()(controlling.cancel)
app.command()(controlling.quarantine)
app.command()(controlling.release)
preparing.app.command()(fronting.nginx)
app.add_typer(preparing.app, name="setup")


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Say the version and end."),
) -> None:
    if version:
        from ..version import version as text

        print(f"vllm-watchdog {text()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)
