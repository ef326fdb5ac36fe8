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


def student_url(host: str, port: int, name: str, login: str, secret: str, pem: Path) -> str:
    """A database URL that speaks TLS with nobody but the holder of this certificate's key."""
    return (
        f"postgresql://{login}:{quote(secret, safe='')}@{host_in_url(host)}:{port}/{quote(name)}"
        f"?sslmode=verify-full&sslrootcert={quote(str(pem), safe='')}"
    )


def host_in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
