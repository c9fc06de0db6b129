"""Certificates for 127.0.0.1, each an authority of its own."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def write_certificate(
    folder: Path, name: str = "tests", password: bytes | None = None, *, host: str = "", begins: int = -1
) -> tuple[Path, Path]:
    """Write a new certificate and its key; their paths. `password`: of the key. `host`: a name beside 127.0.0.1.

    `begins`: days from now; it is valid for two days.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    first = datetime.now(timezone.utc) + timedelta(days=begins)
    names = [x509.IPAddress(ip_address("127.0.0.1")), *([x509.DNSName(host)] if host else [])]
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(first)
        .not_valid_after(first + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / f"{name}.pem", folder / f"{name}.key"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    secret.write_bytes(key.private_bytes(*form))
    return pem, secret
