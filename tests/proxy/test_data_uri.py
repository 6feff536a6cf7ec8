"""Data URIs: strict about base64, exact about everything else."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos_mm.proxy.data_uri import read_payload
from chaos_mm.proxy.policy import Undecodable


@settings(deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_the_prefix_survives_and_the_payload_is_replaced(data: bytes, new: bytes) -> None:
    for prefix in (b"data:image/jpeg;base64,", b"data:;base64,", b"DATA:audio/wav;rate=16000;BASE64,"):
        payload = read_payload(prefix + base64.b64encode(data), bare=False)
        assert payload.data == data
        assert payload.replaced(new) == b'"' + prefix + base64.b64encode(new) + b'"'


def test_bare_base64() -> None:
    payload = read_payload(b"aGk=", bare=True)
    assert (payload.data, payload.replaced(b"ho")) == (b"hi", b'"aG8="')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://a.example/b.jpg", "remote_media"),
        ("HTTPS://a.example/b.jpg", "remote_media"),
        ("file:///etc/passwd", "bad_data_uri"),
        ("data:image/png,abc", "bad_data_uri"),
        ("data:image/png;base64", "bad_data_uri"),
        ('data:image/"png;base64,aGk=', "bad_data_uri"),
        ("data:image/\\png;base64,aGk=", "bad_data_uri"),
        ("data:image/p\nng;base64,aGk=", "bad_data_uri"),
        ("data:image/é;base64,aGk=", "bad_data_uri"),
        ("", "bad_data_uri"),
        ("data:image/png;base64,aGk", "bad_base64"),
        ("data:image/png;base64,aG k=", "bad_base64"),
        ("data:image/png;base64,aG\nk=", "bad_base64"),
        ("data:image/png;base64,é", "bad_base64"),
        ("data:image/png;base64,_-8=", "bad_base64"),
    ],
)
def test_what_is_no_payload_says_why(text: str, reason: str) -> None:
    with pytest.raises(Undecodable) as caught:
        read_payload(text.encode(), bare=False)
    assert caught.value.reason == reason
