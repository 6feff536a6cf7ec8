"""No secret leaves: not plain, not quoted, not in base64, not in a log line."""

import base64
import html
import json
import logging
import time
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_mm.controls.redact import SECRET, Scrubber

MARK = "s3cr3t/Marker+Val=42"


@pytest.fixture(autouse=True)
def no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAOS_MM_TOKEN_FILE", str(tmp_path / "none"))


def scrubber(*texts: str) -> Scrubber:
    return Scrubber({"group": {"deep": list(texts)}}, {})


@pytest.mark.parametrize(
    "text",
    [
        f"the key is {MARK}.",
        f"https://host/v1?key={quote_plus(MARK)}",
        f"quoted {quote_plus(MARK)} alone",
        json.dumps({"key": MARK}),
        base64.b64encode(MARK.encode()).decode(),
        *(base64.b64encode(b"x" * n + MARK.encode() + b"tail").decode() for n in range(5)),
        base64.urlsafe_b64encode(b"user:" + MARK.encode()).decode(),
    ],
)
def test_a_known_secret_is_taken_out_in_every_form(text: str) -> None:
    found = scrubber(MARK).text(text)
    assert MARK not in found and quote_plus(MARK) not in found
    assert "<secret>" in found or "<hidden>" in found
    core = base64.b64encode(MARK.encode()).decode()[4:-4]
    assert core not in found


def test_awkward_secrets() -> None:
    secret = 'line "one"\nline \\two\tü'
    scrub = scrubber(secret)
    for text in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        assert "one" not in scrub.text(text), text
    assert scrub.text("plain .*+?[]") == "plain .*+?[]"
    assert scrubber("a.c+").text("abcc a.c+") == "abcc <secret>"


def test_short_texts_are_no_secrets() -> None:
    assert scrubber("abc", "").text("abc") == "abc"
    assert scrubber("abcd").text("abcd") == "<secret>"


def test_longer_secrets_first() -> None:
    assert scrubber("secret-one", "secret-one-two").text("secret-one-two") == "<secret>"


def test_what_the_environment_says_is_secret() -> None:
    environment = {
        "OPENAI_API_KEY": "key-of-openai",
        "db_password": "pass-word-9",
        "HTTP_AUTHORIZATION": "token-of-http",
        "SHORT_TOKEN": "1234567",
        "GIT_AUTHOR_NAME": "Some Author",
        "CHAOS_MM_TOKEN_FILE": "/home/me/token",
        "SSH_AUTH_SOCK": "/tmp/agent.sock",
        "PATH": "/usr/bin:/bin",
    }
    found = Scrubber(None, environment).text(" ".join(environment.values()))
    assert found == "<secret> <secret> <secret> 1234567 Some Author /home/me/token /tmp/agent.sock /usr/bin:/bin"


def test_the_control_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chaos_mm.control.token import load_or_create_token

    tmp_path.chmod(0o700)
    token = load_or_create_token(tmp_path / "token")
    monkeypatch.setenv("CHAOS_MM_TOKEN_FILE", str(tmp_path / "token"))
    assert Scrubber({}, {}).text(f"is {token}!") == "is <secret>!"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("at http://me:pa55@host:80/p gone", "at http://<hidden>@host:80/p gone"),
        ("postgres://onlytoken@db/x", "postgres://<hidden>@db/x"),
        ("http://h/p?a=1&key=v2#frag", "http://h/p?a=<hidden>&key=<hidden>#frag"),
        ("http://h/#access_token=abc", "http://h/#access_token=<hidden>"),
        ("Authorization: Bearer abc.DEF-123", "Authorization: Bearer <secret>"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic <secret>"),
        ("http://127.0.0.1:8602 answers", "http://127.0.0.1:8602 answers"),
        ("Basic authentication is off; Bearer token missing", "Basic authentication is off; Bearer token missing"),
        ("a mail to me@host.org", "a mail to me@host.org"),
        ("why? because=so", "why? because=so"),
    ],
)
def test_credentials_that_show_by_their_form(text: str, wanted: str) -> None:
    scrub = Scrubber({}, {})
    assert scrub.text(text) == wanted
    assert scrub.text(wanted) == wanted
    assert scrub.holds_secret(text) is (text != wanted)


def test_a_known_secret_within_a_url_hides_nothing_else_from_view() -> None:
    found = scrubber("pa55word").text("http://me:pa55word@host/p?a=pa55word&b=other&c=x pa55word")
    assert found == "http://<hidden>@host/p?a=<hidden>&b=<hidden>&c=<hidden> <secret>"


def test_values_names_and_depth() -> None:
    found = scrubber(MARK).value({MARK: [(MARK, 1, float("inf"))], "n": {"x": b"ab", "y": None}})
    assert found == {"<secret>": [["<secret>", 1, "inf"]], "n": {"x": "<2 bytes>", "y": None}}
    json.dumps(found, allow_nan=False)


def test_a_secret_across_the_cut_of_a_long_text() -> None:
    long = "x" * ((1 << 16) - 8) + MARK
    assert MARK[:8] not in scrubber(MARK).value(long)


@given(st.text(min_size=8, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_any_secret_anywhere(secret: str, before: str, after: str) -> None:
    assert secret not in scrubber(secret).text(before + secret + after).replace("<secret>", "\0")


def test_the_toolkits_log(capsys: pytest.CaptureFixture[str]) -> None:
    scrub, logger = scrubber(MARK), logging.getLogger("chaostoolkit")
    seen = logging.StreamHandler()
    seen.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(seen)
    scrub.install()
    scrub.install()
    try:
        logger.error("plain %s and %d", MARK, 3)
        logger.error("odd %s %s", MARK)
        try:
            raise ValueError(f"bad {MARK}")
        except ValueError:
            logger.error("it broke", exc_info=True, stack_info=True)
    finally:
        scrub.uninstall()
        logger.removeHandler(seen)
    text = capsys.readouterr().err
    assert MARK not in text
    assert "plain <secret> and 3" in text and "ValueError: bad <secret>" in text and "do not fit" in text
    assert seen.filters == []


def test_a_json_log(capsys: pytest.CaptureFixture[str]) -> None:
    from pythonjsonlogger.json import JsonFormatter

    scrub, logger = scrubber(MARK), logging.getLogger("chaostoolkit")
    seen = logging.StreamHandler()
    seen.setFormatter(JsonFormatter("%(levelname) %(message)"))
    logger.addHandler(seen)
    scrub.install()
    try:
        raise ValueError(f"bad {MARK}")
    except ValueError:
        logger.exception("it broke at %s", MARK, extra={"about": {"key": [MARK]}, "who": f"me {MARK}", "n": 3})
    finally:
        scrub.uninstall()
        logger.removeHandler(seen)
    line = capsys.readouterr().err
    assert MARK not in line and json.dumps(MARK)[1:-1] not in line
    found = json.loads(line)
    assert (found["message"], found["who"], found["n"]) == ("it broke at <secret>", "me <secret>", 3)
    assert found["about"] == {"key": ["<secret>"]} and "ValueError: bad <secret>" in found["exc_info"]


def test_it_costs_microseconds() -> None:
    scrub = scrubber(*(f"secret-number-{n}-{n * n}" for n in range(50)))
    text = "chaos_mm r3f9: image_noise hit 35 of 36 requests (psnr_db 26.02) at http://127.0.0.1:8602/leases " * 4
    scrub.text(text)
    began = time.process_time()
    for _ in range(200):
        scrub.text(text)
    assert (time.process_time() - began) / 200 < 0.003


@pytest.mark.parametrize("unit", ["a", "a://", "http://a@", "Bearer ", "x?a=b&", "<secret>", "://<", "basic a"])
def test_no_text_takes_long(unit: str) -> None:
    scrub, text = scrubber(MARK), unit * (200_000 // len(unit)) + " http://h/ Bearer"
    began = time.process_time()
    scrub.text(text)
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    "text",
    [
        "in hex 70617373776f7264203122 and 70617373776F7264203122",
        "in a URL pass%3dw%2f1 in small letters",
    ],
)
def test_hexadecimal_and_small_letters_in_urls(text: str) -> None:
    found = scrubber('password 1"', "pass=w/1").text(text)
    assert "7061" not in found and "pass%3d" not in found and SECRET in found


def test_json_within_json_and_html() -> None:
    secret = 'pa"ss\\wörd<1>'
    once = json.dumps({"a": secret})
    for text in (json.dumps({"b": once}), f"<p>{html.escape(secret)}</p>", html.escape(secret, quote=False)):
        assert SECRET in scrubber(secret).text(text) and "rd" not in scrubber(secret).text(text).replace(SECRET, "")


def test_a_long_token_that_a_message_cut_short() -> None:
    token = "sk-live-0123456789abcdefghijklmnopqrstuvwxyz"
    for message in (f"sigma is {token[:40]!r}; allowed: 0 to 1", f"no lease is named {token!r:.30}", f"x{token}"):
        assert token[:16] not in scrubber(token).text(message) and "abcdef" not in scrubber(token).text(message)
    assert scrubber(token).text("sk-live-0123 allowed") == "sk-live-0123 allowed"


def test_secrets_that_are_numbers() -> None:
    found = Scrubber({"a": {"pin": 83214976, "port": 8600, "on": True}}, {})
    told = {"a": 83214976, "b": "pin 83214976", "c": 8600, "d": True, "e": 1}
    assert found.value(told) == {"a": SECRET, "b": f"pin {SECRET}", "c": 8600, "d": True, "e": 1}


def test_words_of_a_report_stay_where_they_stand_alone() -> None:
    found = scrubber("pass", "error", "verdict", "image", "recovery")
    told = {"verdict": "passed", "words": ["passed", "error"], "reasons": [{"word": "error", "reason": "an error"}]}
    assert found.value(told) == {**told, "reasons": [{"word": "error", "reason": f"an {SECRET}"}]}
    assert found.value({"kind": "image", "my image": "pass"}) == {"kind": "image", f"my {SECRET}": SECRET}


@pytest.mark.parametrize("name", ["api_key", "X-Api-Key", "password", "db_password", "client-secret", "Authorization"])
def test_what_is_called_a_secret_is_one(name: str) -> None:
    assert scrubber().value({"configuration": {name: "abc"}}) == {"configuration": {name: SECRET}}


@pytest.mark.parametrize("name", ["key", "max_tokens", "first_token_at", "keepalive_seconds", "author", "tokenizer"])
def test_what_only_sounds_like_one_is_none(name: str) -> None:
    assert scrubber().value({name: "abc", "api_key": 3, "token": ""}) == {name: "abc", "api_key": 3, "token": ""}
