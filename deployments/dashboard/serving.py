"""`classgan dashboard`: the class page as a process of its own. It is given nothing but the views of schema `watch`."""

import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from deployments.local.database import database_url
from deployments.local.processes import free_port
from deployments.prefect_settings import clean_environment
from deployments.server.class_file import EVERYWHERE, ClassFile
from deployments.student.addresses import host_in_url
from gan_core.errors import StackError
from gan_core.settings import settings
from gan_core.store.viewers import watching

console = Console()

PAGE = Path(__file__).with_name("page.py")
OPTIONS = {
    "server.headless": "true",  # don't open a browser, don't ask for an e-mail address
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",  # nothing goes to anybody
    "client.toolbarMode": "minimal",
    "logger.level": "warning",
    "logger.hideWelcomeMessage": "true",  # it would ask a server in the Internet for this machine's address
    "client.showErrorDetails": "none",  # a traceback may show addresses
    "theme.primaryColor": "#3366cc",
}


def serve(listen: str, port: int) -> None:
    """Serve the page until Ctrl-C.

    Raises:
        StackError: streamlit is missing.
        StoreError: there is nothing to look at; said before the page is up.
    """
    if find_spec("streamlit") is None:
        raise StackError("The class page needs streamlit: pip install 'classgan[instructor]'.")
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # a script's background job would ignore Ctrl-C; a polite kill means the same
        signal.signal(number, signal.default_int_handler)
    with database_url() as url:
        with watching.viewer(url) as connection:
            watching.trainings(connection)
        port, class_file = free_port(port), ClassFile.load(settings().home)
        where = listen if listen not in EVERYWHERE else class_file.addresses[0] if class_file else "127.0.0.1"
        server = subprocess.Popen(
            command(listen, port, where),
            env={**clean_environment(), "CLASSGAN_DATABASE_URL": url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is handed on below, once
        )
        console.print(
            f"The class page: [link]http://{host_in_url(where)}:{port}[/link]   (Ctrl-C ends it)", soft_wrap=True
        )
        try:
            code = server.wait()
        except KeyboardInterrupt:
            return
        finally:
            end(server)
        raise StackError(f"The class page ended by itself (exit code {code}); the lines above say why.")


def command(listen: str, port: int, where: str) -> list[str]:
    """What starts the page's process. Only a browser that came to `where` may speak to it, or to a bare address of this machine."""
    options = {**OPTIONS, "server.address": listen, "server.port": str(port), "browser.serverAddress": where}
    flags = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-P", "-m", "streamlit", "run", *flags, str(PAGE)]


def end(server: "subprocess.Popen[bytes]") -> None:
    """Politely, then at once: the page has nothing to lose."""
    if server.poll() is not None:
        return
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(3)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
