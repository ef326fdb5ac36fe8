"""`classgan metrics`: what Prometheus reads, and what Prometheus and Grafana are told about it."""

from importlib.resources import files

from rich.console import Console

from deployments.commands.reports import database_url
from deployments.door import SCRAPER, Door
from deployments.processes import free_port
from gan_core.settings import settings

HERE = "127.0.0.1"  # there is no login in front of it
EVERY = 15  # seconds between two scrapes

console = Console()


def print_metrics() -> None:
    """Once; if the database is away, `classgan_up 0` is all."""
    from deployments.monitoring.collector import exposition

    with database_url() as url:
        print(exposition(url)().decode(), end="")


def serve(port: int) -> None:
    """On 127.0.0.1, for the programs of this machine, until Ctrl-C."""
    from prometheus_client import start_http_server

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


def print_config(port: int) -> None:
    """A prometheus.yml for the class in this folder: with its login and certificate, or, on one machine, without."""
    import yaml

    door = Door.load(settings().home)
    job: dict[str, object] = {"job_name": "classgan"}
    if door is None:
        job["static_configs"] = [{"targets": [f"{HERE}:{port}"]}]
    else:
        job["scheme"] = "https"
        job["basic_auth"] = {"username": SCRAPER, "password": door.scrape_secret}
        job["tls_config"] = {"ca_file": str((settings().home / "class.pem").resolve())}
        job["static_configs"] = [{"targets": [door.public_server.removeprefix("https://")]}]
    config = {
        "global": {"scrape_interval": f"{EVERY}s", "evaluation_interval": f"{EVERY}s"},
        "rule_files": ["classgan-rules.yml"],
        "scrape_configs": [job],
    }
    print(yaml.safe_dump(config, sort_keys=False), end="")
