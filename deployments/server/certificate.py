"""The class's certificate: made once by the instructor, and pinned by every invite.

It signs itself, so no authority has to be asked or trusted. What an invite pins is the SHA-256 of its public key, as in
RFC 7469: when the class moves to another address the certificate is made anew around the same key, and invites hold.
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gan_core.errors import StackError
from gan_core.files import write_private

DAYS = 825  # the longest time that every system accepts
LOCAL = ("localhost", "127.0.0.1", "::1")  # the instructor's own programs come this way


def make(certificate: Path, key: Path, addresses: Sequence[str]) -> None:
    """Write a certificate for these host names and IP addresses; the key is made on first use and kept."""
    if key.exists():
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise StackError(f"{key} holds another kind of key. Move it away and call `classgan init` again.")
    else:
        private = ec.generate_private_key(ec.SECP256R1())
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_private(key, pem)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a classgan class")])
    now = datetime.now(UTC)
    own = x509.SubjectKeyIdentifier.from_public_key(private.public_key())
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, crl_sign=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # students' clocks
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName([_name_of(a) for a in dict.fromkeys((*addresses, *LOCAL))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .add_extension(usage, True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(own, False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), False)
        .sign(private, hashes.SHA256())
    )
    write_private(certificate, signed.public_bytes(serialization.Encoding.PEM))


def is_good(certificate: Path, addresses: Sequence[str]) -> bool:
    """Whether this file is a certificate for these addresses that holds for another month."""
    try:
        known = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    is_fresh = known.not_valid_after_utc > datetime.now(UTC) + timedelta(days=30)
    return is_fresh and {_name_of(address) for address in addresses} <= set(names)


def _name_of(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
