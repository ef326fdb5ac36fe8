"""The pin of a class's certificate: an invite carries it, and a student's machine recognises the class by it.

It is the SHA-256 of the certificate's public key, as in RFC 7469: the class may make a new certificate around the same key.
"""

import base64
import hashlib
import http.client
import ssl
import urllib.request
from contextlib import closing
from urllib.parse import SplitResult, unquote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import serialization


def pin_of(certificate: bytes) -> str:
    """What an invite says of this certificate (PEM): SHA-256 of its public key, in URL-safe base64 without padding."""
    key = x509.load_pem_x509_certificate(certificate).public_key()
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")


def fetch(host: str, port: int, seconds: float = 10) -> bytes:
    """The certificate (PEM) that answers there, whoever it is: the pin says whether to believe it. A proxy that the
    environment names (HTTPS_PROXY, NO_PROXY) is gone through, as the other connections do.

    Raises:
        OSError: nobody answers, or not with TLS.
    """
    proxy = "" if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get("https", "")
    through = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    if through.scheme not in ("", "http"):
        raise OSError(
            f"the proxy {through.scheme}://{through.hostname} can't be used here: HTTPS_PROXY must begin with http://"
        )
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    road = http.client.HTTPConnection(
        through.hostname or host, (through.port or 80) if through.hostname else port, timeout=seconds
    )
    if through.hostname:
        road.set_tunnel(host, port, _login_of(through))
    with closing(road):
        try:
            road.connect()
        except http.client.HTTPException as exc:
            raise OSError(f"the proxy {through.hostname} answers with {exc!r}") from exc
        with blind.wrap_socket(road.sock, server_hostname=host) as secure:
            shown = secure.getpeercert(binary_form=True)
    if shown is None:
        raise OSError(f"{host}:{port} shows no certificate")
    return ssl.DER_cert_to_PEM_cert(shown).encode()


def _login_of(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
