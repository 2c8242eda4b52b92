"""The `tolfl` command; the only place that prints and draws progress bars.

Every command exits with 0 on success, 1 when it failed, 2 when its arguments are wrong or it was
given data that it cannot use. Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import sys

import typer

from tolfl.cli.data_commands import app as data_app
from tolfl.cli.demo import demo
from tolfl.cli.detector_commands import evaluate, export, fit, inspect, score, watch
from tolfl.cli.doctor import doctor
from tolfl.cli.entry import run
from tolfl.cli.experiment_commands import compare, plan, reproduce
from tolfl.cli.fleet_commands import enroll_app, node, status
from tolfl.cli.run_commands import dashboard, report, simulate, up

app = typer.Typer(
    help="Failure-tolerant federated learning for anomaly detection: any device may die, training carries on.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for _command in (
    *(fit, score, watch, evaluate, inspect, export),
    *(simulate, compare, reproduce, plan),
    *(up, node, status, dashboard, report),
    *(demo, doctor),
):
    app.command()(_command)
app.add_typer(data_app, name="data")
app.add_typer(enroll_app, name="enroll")


@app.callback(invoke_without_command=True)
def about(version: bool = typer.Option(False, "--version", help="Show the version and exit.")) -> None:
    """Failure-tolerant federated learning for anomaly detection: any device may die, training carries on."""
    if version:
        from importlib.metadata import version as installed_version

        typer.echo(f"tolfl {installed_version('tolfl')}")
        raise typer.Exit


def main() -> None:
    """Run the command line; a bad input is one sentence, never a traceback."""
    sys.exit(run(app))
