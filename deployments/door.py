"""What a class shows to the network: addresses, certificate, the instructor's login. Made by `classgan init`, one file."""

import hmac
import os
from pathlib import Path
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deployments import certificate
from gan_core.errors import StackError
from gan_core.store.logins import hash_of, new_secret

EVERYWHERE = ("0.0.0.0", "::")  # listening on every address of this machine
INSTRUCTOR = "instructor"  # the instructor's login at the class server, and the owner of the embedded database
SCRAPER = "metrics"  # Prometheus' login at the class server, for /metrics and nothing else


class Door(BaseModel):
    """How students reach the class. Stored in the class's folder, for the instructor's eyes only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    addresses: tuple[str, ...] = Field(min_length=1)  # host names or IPs; invites name the first
    listen: str = "0.0.0.0"  # what the servers bind to
    port: int = Field(ge=1, le=65535)  # of the class server
    database_port: int = Field(ge=1, le=65535)  # of the embedded PostgreSQL, or of the existing one
    database_url: str = ""  # of an existing PostgreSQL, as the instructor; "": the embedded one
    instructor_secret: str = Field(default_factory=new_secret)
    inner_secret: str = Field(
        default_factory=new_secret
    )  # what Prefect itself asks for; nobody but the class server knows it

    @property
    def instructor_hash(self) -> str:
        return hash_of(self.instructor_secret)

    @property
    def scrape_secret(self) -> str:
        """What Prometheus logs in with: it follows from the instructor's secret, which can't be found from it."""
        return hmac.new(self.instructor_secret.encode(), SCRAPER.encode(), "sha256").hexdigest()

    @property
    def inner_login(self) -> str:
        return f"prefect:{self.inner_secret}"

    @property
    def public_server(self) -> str:
        """The class server as others reach it, and the instructor's browser."""
        return f"https://{host_in_url(self.addresses[0])}:{self.port}"

    def save(self, home: Path) -> None:
        certificate.write_private(home / "class.json", self.model_dump_json(indent=2).encode())

    @staticmethod
    def load(home: Path) -> "Door | None":
        """The class that was made in this folder; None if it is only one on this machine, as `make demo` starts it.

        Raises:
            StackError: its file is damaged.
        """
        path = home / "class.json"
        if not path.exists():
            return None
        try:
            return Door.model_validate_json(path.read_bytes())
        except ValidationError as exc:
            raise StackError(
                f"{path} is damaged ({exc.error_count()} faults, the first: {exc.errors()[0]['msg']}). Take it from a backup, or "
                "remove it and call `classgan init` again: invites then need `classgan students rotate`."
            ) from exc

    @property
    def local_server(self) -> str:
        """The class server as this machine's own programs reach it."""
        host = "127.0.0.1" if self.listen in EVERYWHERE else self.listen
        return f"https://{host_in_url(host)}:{self.port}"

    @property
    def database_name(self) -> str:
        return str(conninfo_to_dict(self.database_url).get("dbname") or "classgan") if self.database_url else "classgan"

    @property
    def database_host(self) -> str:
        """Where students find the database."""
        return str(conninfo_to_dict(self.database_url).get("host") or "") if self.database_url else self.addresses[0]


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


def made(home: Path, addresses: tuple[str, ...], listen: str, port: int, database_port: int, database_url: str) -> Door:
    """The class in this folder, made now or brought to these addresses; secrets that exist are kept. Safe to repeat."""
    home.mkdir(parents=True, exist_ok=True)
    if os.name == "posix":
        home.chmod(home.stat().st_mode & 0o711)  # nobody else lists it; PostgreSQL's own user must pass through
    known = Door.load(home)
    facts = {
        "addresses": addresses,
        "listen": listen,
        "port": port,
        "database_port": database_port,
        "database_url": database_url,
    }
    door = known.model_copy(update=facts) if known else Door.model_validate(facts)
    names = addresses if listen in EVERYWHERE else (*addresses, listen)
    if not certificate.is_good(home / "class.pem", names):
        certificate.make(home / "class.pem", home / "class.key", names)
    if door != known:
        door.save(home)
    return door
