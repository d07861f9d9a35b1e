"""A private certificate authority, and a TLS front for a plain server that it vouches for.

For stores with certificates that no public authority signed. Bytes pass through unchanged, so
what the server behind sees (the Host header, for signatures) is what the client sent.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOT_FOR_SIGNING = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "encipher_only",
    "decipher_only",
)
_DAY = datetime.timedelta(days=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def make_authority(directory: Path, *, address: str) -> tuple[Path, Path]:
    """(the authority's certificate, certificate and key of a server at `address`), PEM files."""
    now = datetime.datetime.now(datetime.UTC)
    root, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def signed(subject: str, key: ec.EllipticCurvePrivateKey, is_ca: bool) -> x509.Certificate:
        made = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name("a private authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key()),
                critical=False,
            )
        )
        if is_ca:
            usage = dict.fromkeys(NOT_FOR_SIGNING, False)
            made = made.add_extension(
                x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True
            )
        else:
            names = [x509.IPAddress(ipaddress.ip_address(address))]
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return made.sign(root, hashes.SHA256())

    authority, server = directory / "ca.crt", directory / "server.pem"
    pem = serialization.Encoding.PEM
    authority.write_bytes(signed("a private authority", root, True).public_bytes(pem))
    server.write_bytes(
        signed("a server", own, False).public_bytes(pem)
        + own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return authority, server


@contextlib.contextmanager
def tls_front(*, certificate: Path, address: str, behind: tuple[str, int]) -> Iterator[int]:
    """Serve TLS at `address` and pass everything on; yields the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server((address, 0)) as listener:
        threading.Thread(target=_accept, args=(listener, context, behind), daemon=True).start()
        yield listener.getsockname()[1]


def _accept(listener: socket.socket, context: ssl.SSLContext, behind: tuple[str, int]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return  # closed
        threading.Thread(target=_serve, args=(client, context, behind), daemon=True).start()


def _serve(client: socket.socket, context: ssl.SSLContext, behind: tuple[str, int]) -> None:
    try:
        outer = context.wrap_socket(client, server_side=True)
        inner = socket.create_connection(behind)
    except OSError:
        client.close()
        return
    back = threading.Thread(target=_pass, args=(inner, outer), daemon=True)
    back.start()
    _pass(outer, inner)
    back.join()
    outer.close()
    inner.close()


def _pass(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    finally:
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
