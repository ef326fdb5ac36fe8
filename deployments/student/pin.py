"""The pin of a class's certificate: an invite carries it, and a student's machine recognises the class by it.

It is the SHA-256 of the certificate's public key, as in RFC 7469: the class may make a new certificate around the same key.
"""

import base64
import hashlib
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import serialization


def pin_of(certificate: bytes) -> str:
    """What an invite says of this certificate (PEM): SHA-256 of its public key, in URL-safe base64 without padding."""
    key = x509.load_pem_x509_certificate(certificate).public_key()
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")


def fetch(host: str, port: int, seconds: float = 10) -> bytes:
    """The certificate (PEM) that answers there, whoever it is: the pin says whether to believe it.

    Raises:
        OSError: nobody answers, or not with TLS.
    """
    return ssl.get_server_certificate((host, port), timeout=seconds).encode()
