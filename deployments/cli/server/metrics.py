"""`classgan metrics …`: what Prometheus reads, and what Prometheus and Grafana are told about it."""

from importlib.resources import files
from typing import Annotated

import typer

from deployments.cli.output import console

commands = typer.Typer(invoke_without_command=True, help="Print the class's metrics once, as Prometheus reads them.")
PortOption = Annotated[int, typer.Option(min=1, max=65535, help="Port of `metrics serve` on 127.0.0.1.")]
PORT = 9464


@commands.callback()
def show(context: typer.Context) -> None:
    """Print the class's metrics once, as Prometheus reads them at /metrics of the class server."""
    if context.invoked_subcommand is None:
        print_metrics()


@commands.command("serve")
def metrics_serve(port: PortOption = PORT) -> None:
    """Serve the metrics on this machine until Ctrl-C, for a class without a class server."""
    serve(port)


@commands.command("config")
def metrics_config(port: PortOption = PORT) -> None:
    """Print a prometheus.yml for this class. The secret of its login, which can only read metrics, is in a file of its own."""
    import yaml

    from deployments.server.class_file import SCRAPER, ClassFile
    from gan_core.files import write_private
    from gan_core.settings import settings

    class_file = ClassFile.load(settings().home)
    job: dict[str, object] = {"job_name": "classgan"}
    if class_file is None:
        job["static_configs"] = [{"targets": [f"{HERE}:{port}"]}]
    else:
        job["scheme"] = "https"
        secret = settings().home.resolve() / "metrics.secret"
        write_private(secret, class_file.scrape_secret.encode())  # what is printed may land where everybody reads it
        job["basic_auth"] = {"username": SCRAPER, "password_file": str(secret)}
        job["tls_config"] = {"ca_file": str(settings().home.resolve() / "class.pem")}
        job["static_configs"] = [{"targets": [class_file.public_server.removeprefix("https://")]}]
    config = {
        "global": {"scrape_interval": f"{EVERY}s", "evaluation_interval": f"{EVERY}s"},
        "rule_files": ["classgan-rules.yml"],
        "scrape_configs": [job],
    }
    print(yaml.safe_dump(config, sort_keys=False), end="")


@commands.command("rules")
def metrics_rules() -> None:
    """Print alert rules for Prometheus: no workers, a silent worker, many refusals, a stalled training, GPU memory."""
    print_file("rules.yml")


@commands.command("dashboard")
def metrics_dashboard() -> None:
    """Print a dashboard for Grafana, as JSON to import."""
    print_file("dashboard.json")


HERE = "127.0.0.1"  # there is no login in front of it
EVERY = 15  # seconds between two scrapes


def print_metrics() -> None:
    """Once; if the database is away, `classgan_up 0` is all."""
    from deployments.local.database import database_url
    from deployments.monitoring.collector import exposition

    with database_url() as url:
        print(exposition(url)().decode(), end="")


def serve(port: int) -> None:
    """On 127.0.0.1, for the programs of this machine, until Ctrl-C."""
    from prometheus_client import start_http_server

    from deployments.local.database import database_url
    from deployments.local.processes import free_port
    from deployments.monitoring.collector import registry_of

    with database_url() as url:
        server, thread = start_http_server(free_port(port), HERE, registry_of(url))
        console.print(f"Metrics: http://{HERE}:{server.server_port}/metrics   (Ctrl-C ends it)", soft_wrap=True)
        try:
            thread.join()
        except KeyboardInterrupt:
            server.shutdown()


def print_file(name: str) -> None:
    """A file of deployments/monitoring, as it is."""
    print(files("deployments.monitoring").joinpath(name).read_text(encoding="utf-8"), end="")
