"""The class's certificate is made once, signs itself, and is known by its key."""

import ssl
import threading
from contextlib import closing, contextmanager
from socket import create_server, socket

import pytest
from systems import is_only_its_owners

from deployments.server.certificate import is_good, make
from deployments.student.pin import fetch, pin_of


@pytest.fixture
def files(tmp_path):
    certificate, key = tmp_path / "class.pem", tmp_path / "class.key"
    make(certificate, key, ["127.0.0.1", "gan.example.edu"])
    return certificate, key


@contextmanager
def answering(certificate, key):
    """A server with this certificate that says hello to everybody; gives its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with closing(create_server(("127.0.0.1", 0))) as listening:

        def serve() -> None:
            while True:
                try:
                    plain, _ = listening.accept()
                    with plain, context.wrap_socket(plain, server_side=True) as secure:
                        secure.sendall(b"hello")
                except ssl.SSLError:
                    continue  # the other side didn't believe us
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(2)


def hello(port: int, trusted, name: str) -> bytes:
    context = ssl.create_default_context(cafile=trusted)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does by itself
    with socket() as plain:
        plain.connect(("127.0.0.1", port))
        with context.wrap_socket(plain, server_hostname=name) as secure:
            return secure.recv(5)


def test_both_files_are_for_their_owner_only(files):
    for path in files:
        assert is_only_its_owners(path)


@pytest.mark.parametrize("name", ["127.0.0.1", "gan.example.edu", "localhost"])
def test_who_trusts_this_certificate_gets_through_under_each_of_its_names(files, name):
    with answering(*files) as port:
        assert hello(port, files[0], name) == b"hello"


def test_under_another_name_nobody_believes_it(files):
    with answering(*files) as port, pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        hello(port, files[0], "evil.example.edu")


def test_somebody_in_between_with_a_certificate_of_their_own_is_not_believed(files, tmp_path):
    theirs = tmp_path / "theirs.pem", tmp_path / "theirs.key"
    make(*theirs, ["127.0.0.1"])
    with answering(*theirs) as port:
        assert pin_of(fetch("127.0.0.1", port)) != pin_of(files[0].read_bytes())
        with pytest.raises(ssl.SSLCertVerificationError):
            hello(port, files[0], "127.0.0.1")


def test_a_new_address_gets_a_new_certificate_around_the_same_key(files):
    before, pin = files[0].read_bytes(), pin_of(files[0].read_bytes())
    assert is_good(files[0], ["gan.example.edu"])
    assert not is_good(files[0], ["10.0.0.7"])
    make(*files, ["10.0.0.7"])
    assert files[0].read_bytes() != before
    assert pin_of(files[0].read_bytes()) == pin  # so invites hold


def test_something_else_is_no_good_certificate(tmp_path):
    (tmp_path / "class.pem").write_text("hello", encoding="utf-8")
    assert not is_good(tmp_path / "class.pem", [])
    assert not is_good(tmp_path / "none.pem", [])
