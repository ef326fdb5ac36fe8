"""What a class shows to the network: addresses, certificate, the instructor's login. Made by `classgan init`, one file."""

import hmac
import os
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deployments.server import certificate
from deployments.student.addresses import host_in_url
from deployments.student.invites import Invite
from deployments.student.pin import pin_of
from gan_core.errors import StackError
from gan_core.files import write_private
from gan_core.store.logins import hash_of, new_secret

EVERYWHERE = ("0.0.0.0", "::")  # listening on every address of this machine
INSTRUCTOR = "instructor"  # the instructor's login at the class server, and the owner of the embedded database
SCRAPER = "metrics"  # Prometheus' login at the class server, for /metrics and nothing else


class ClassFile(BaseModel):
    """How students reach the class. Stored in the class's folder, for the instructor's eyes only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    addresses: tuple[str, ...] = Field(min_length=1)  # host names or IPs; invites name the first
    listen: str = "0.0.0.0"  # what the servers bind to
    port: int = Field(ge=1, le=65535)  # of the class server
    database_port: int = Field(0, ge=0, le=65535)  # where workers of version 0.1 come to; 0: the class was made later
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
        write_private(home / "class.json", self.model_dump_json(indent=2).encode())

    @staticmethod
    def load(home: Path) -> "ClassFile | None":
        """The class that was made in this folder; None if it is only one on this machine, as `make demo` starts it.

        Raises:
            StackError: its file is damaged.
        """
        path = home / "class.json"
        if not path.exists():
            return None
        try:
            return ClassFile.model_validate_json(path.read_bytes())
        except ValidationError as exc:
            raise StackError(
                f"{path} is damaged ({exc.error_count()} faults, the first: {exc.errors()[0]['msg']}). Take it from a backup, or "
                "remove it and call `classgan init` again: invites then need `classgan students rotate`."
            ) from exc

    def invite(self, home: Path, login: str, secret: str) -> Invite:
        """The invite of a student with this secret. The certificate lies in `home`."""
        return Invite(
            host=self.addresses[0],
            port=self.port,
            login=login,
            secret=secret,
            pin=pin_of((home / "class.pem").read_bytes()),
            classgan=version("classgan"),
            prefect=version("prefect"),
        )

    @property
    def local_server(self) -> str:
        """The class server as this machine's own programs reach it."""
        host = "127.0.0.1" if self.listen in EVERYWHERE else self.listen
        return f"https://{host_in_url(host)}:{self.port}"


def make(home: Path, addresses: tuple[str, ...], listen: str, port: int, database_url: str) -> ClassFile:
    """The class in this folder, made now or brought to these addresses; secrets that exist are kept. Safe to repeat."""
    home.mkdir(parents=True, exist_ok=True)
    if os.name == "posix":
        home.chmod(home.stat().st_mode & 0o711)  # nobody else lists it; PostgreSQL's own user must pass through
    known = ClassFile.load(home)
    facts = {
        "addresses": addresses,
        "listen": listen,
        "port": port,
        "database_url": database_url,
    }
    class_file = known.model_copy(update=facts) if known else ClassFile.model_validate(facts)
    names = addresses if listen in EVERYWHERE else (*addresses, listen)
    if not certificate.is_good(home / "class.pem", names):
        certificate.make(home / "class.pem", home / "class.key", names)
    if class_file != known:
        class_file.save(home)
    return class_file
