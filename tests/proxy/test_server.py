"""Which upstreams there can be, and one behind TLS."""

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from chaos_mm.proxy.server import upstream_at
from tests.proxy.conftest import Connect, StartProxy
from tests.proxy.wires import split

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    ("url", "shown", "authority"),
    [
        ("http://127.0.0.1:8600", "http://127.0.0.1:8600", b"127.0.0.1:8600"),
        ("http://model.example:80/", "http://model.example", b"model.example"),
        ("https://model.example", "https://model.example", b"model.example"),
        ("https://model.example:8443", "https://model.example:8443", b"model.example:8443"),
        ("http://[::1]:8600", "http://[::1]:8600", b"[::1]:8600"),
    ],
)
def test_the_host_field_is_what_a_direct_client_would_send(url: str, shown: str, authority: bytes) -> None:
    upstream = upstream_at(url, preserve_host=False, connect_seconds=1)
    assert (upstream.url, upstream.authority) == (shown, authority)
    assert upstream_at(url, preserve_host=True, connect_seconds=1).authority == b""


def certificate(folder: Path) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "cert.pem"
    path.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize("trusted", [True, False])
async def test_an_upstream_behind_tls_is_verified(
    start_proxy: StartProxy, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    path = certificate(tmp_path)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with start_proxy(f"https://127.0.0.1:{port}") as proxy:
        answer = await (await connect(proxy.url)).ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        if trusted:
            assert answer == OK
            assert seen == [b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port]
        else:
            assert b"x-chaos-mm-proxy-error: upstream_unreachable" in split(answer)[0]
            assert seen == []
    server.close()
