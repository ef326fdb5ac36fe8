"""Where the class of this machine keeps its data, whether it is up or not."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from deployments.local.notes import ill_parts, no_class, notes_in
from deployments.local.postgres import Postgres
from deployments.local.stack import LocalStack
from deployments.server.class_file import ClassFile
from gan_core.errors import StackError
from gan_core.settings import settings


@contextmanager
def database_url(live: bool = False) -> Generator[str]:
    """The database to look into: the setting, the class that runs on this machine, or its data after it has ended.

    Args:
        live: the command is about what goes on, so it says if nothing does, and which parts are ill.

    Raises:
        StackError: nothing was ever trained here, or the class is still being started.
    """
    home = settings().home.resolve()
    if settings().database_url:
        yield settings().database_url
        return
    class_file, folder = ClassFile.load(home), home / "postgres"
    if notes_in(home).is_alive:
        for illness in ill_parts(home) if live else ():
            print(illness.sentence(), file=sys.stderr)
        yield LocalStack(home, settings().outputs).attach().database
        return
    elsewhere = class_file.database_url if class_file else ""
    if not elsewhere and not (folder / "PG_VERSION").exists():
        raise StackError(f"There is no class in {home} yet. Start with `classgan demo`, or set CLASSGAN_DATABASE_URL.")
    if live:
        print(no_class(home), file=sys.stderr)
    if elsewhere:
        yield elsewhere
        return
    server = Postgres(folder)
    server.start()
    try:
        yield server.url()
    finally:
        server.stop()
