"""How a machine reaches its class: URLs, and Prefect's settings for them."""

from pathlib import Path
from urllib.parse import quote


def reach(server: str, pem: Path, login: str, secret: str) -> dict[str, str]:
    """Prefect's settings for a class server whose certificate lies in this file."""
    return {
        "PREFECT_API_URL": f"{server}/api",
        "PREFECT_API_SSL_CERT_FILE": str(pem),
        "PREFECT_API_AUTH_STRING": f"{login}:{secret}",
    }


def student_url(server: str, pem: Path, login: str, secret: str) -> str:
    """The class server as a shift asks it (`gan_core.store.door`): no other server can show a certificate that this file accepts."""
    place = server.removeprefix("https://")
    return f"https://{login}:{quote(secret, safe='')}@{place}?certificate={quote(str(pem), safe='')}"


def host_in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
