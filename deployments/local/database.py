"""Where the class of this machine keeps its data, whether it is up or not."""

from collections.abc import Generator
from contextlib import contextmanager

from deployments.local.postgres import Postgres
from deployments.local.stack import LocalStack
from deployments.server.class_file import ClassFile
from gan_core.errors import StackError
from gan_core.settings import settings


@contextmanager
def database_url() -> Generator[str]:
    """The database to look into: the setting, the class that runs on this machine, or its data after it has ended.

    Raises:
        StackError: nothing was ever trained here.
    """

    class_file = ClassFile.load(settings().home)
    if elsewhere := settings().database_url or (class_file.database_url if class_file else ""):
        yield elsewhere
        return
    try:
        yield LocalStack(settings().home, settings().outputs).attach().database
        return
    except StackError:
        pass
    if not (settings().home / "postgres" / "PG_VERSION").exists():
        raise StackError(
            f"There is no class in {settings().home.resolve()} yet. Start with `classgan demo`, or set CLASSGAN_DATABASE_URL."
        )
    server = Postgres(settings().home / "postgres")
    server.start()
    try:
        yield server.url()
    finally:
        server.stop()
