"""`classgan metrics …`: what Prometheus and Grafana need."""

from typing import Annotated

import typer

metrics = typer.Typer(invoke_without_command=True, help="Print the class's metrics once, as Prometheus reads them.")

PortOption = Annotated[int, typer.Option(min=1, max=65535, help="Port of `metrics serve` on 127.0.0.1.")]
PORT = 9464


@metrics.callback()
def show(context: typer.Context) -> None:
    """Print the class's metrics once, as Prometheus reads them at /metrics of the class server."""
    from deployments.commands.metrics import print_metrics

    if context.invoked_subcommand is None:
        print_metrics()


@metrics.command("serve")
def metrics_serve(port: PortOption = PORT) -> None:
    """Serve them on this machine until Ctrl-C, for a class that has no class server."""
    from deployments.commands.metrics import serve

    serve(port)


@metrics.command("config")
def metrics_config(port: PortOption = PORT) -> None:
    """Print a prometheus.yml for this class, with the login that opens its metrics and nothing else."""
    from deployments.commands.metrics import print_config

    print_config(port)


@metrics.command("rules")
def metrics_rules() -> None:
    """Print alerts for Prometheus: no workers, a worker gone, much refused, a training not moving, GPU memory."""
    from deployments.commands.metrics import print_file

    print_file("rules.yml")


@metrics.command("dashboard")
def metrics_dashboard() -> None:
    """Print a dashboard for Grafana, as JSON to import."""
    from deployments.commands.metrics import print_file

    print_file("dashboard.json")
