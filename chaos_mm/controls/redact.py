"""Nothing that a run leaves behind holds a secret: not its folder, not the journal, not a log line.

What is secret is known: the experiment's secrets, the control token, and environment variables whose name says so.
Credentials that are not known show by their form: ``user:password@`` and query values of URLs, Bearer and Basic tokens;
or by the name of what holds them: ``api_key``, ``password``. The words that reports are made of stay where they stand
alone, whatever an experiment calls secret: a password "pass" must not turn ``passed`` into a word that nobody knows.
"""

import base64
import html
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from chaos_mm.controls.strict import strict
from chaos_mm.core.errors import ChaosMMError
from chaos_mm.report.words import WORDS

__all__ = ["HIDDEN", "SECRET", "Scrubber", "holds_by_name"]

SECRET = "<secret>"
HIDDEN = "<hidden>"
_LEAST, _LEAST_OF_ENVIRONMENT, _LEAST_ENCODED, _LEAST_DIGITS = 4, 8, 6, 6
_TOKEN = re.compile(r"[A-Za-z0-9_.~+=-]{24,}")
_BEGINNING = 16  # a message shows the beginning of what is too long for it: so much of a token is enough to know it
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH(?!OR(?:_|ITY|$))", re.IGNORECASE)
_PLACE_NAME = re.compile(r"_(?:FILE|PATH|DIR|SOCK)$", re.IGNORECASE)  # says where a secret lies; not one itself
_HOLDER = re.compile(
    r"(?:^|[_.\- ])(?:(?:api|access|private|secret|signing|session)[_-]?key|secret|token|password|passwd|passphrase"
    r"|credentials?|authorization)$",
    re.IGNORECASE,
)
# Names and values of verdict.json, events.jsonl, records.jsonl and the toolkit's journal.
_REPORT_WORDS = """
schema run folder experiment title source started ended duration_seconds verdict words word reasons reason
expect exit_code dry fault leases lease name point params blast_radius seed ttl_seconds matched applied errored
expected achieved count mean min max ended_by released state hits phases phase seconds began objectives
objective sli comparison threshold window_seconds min_samples guard filters named measured value unit samples
met windows without_data started_seconds slis recovery_seconds residue live target_replaced kind request_id
before after media_before media_after axes versions chaos_mm chaostoolkit chaostoolkit-lib python platform
target url model replay configuration baseline recovery end events event answers whole activity status
background inject evidence signal place stop rollback type pid phase_seconds refused sample kept what dropped
actions activities mode rate selector limit canary bystander image audio text agreement colour ratio requests
proxy agent host load kubernetes release process keepalive succeeded failed completed aborted probe action id
session traffic audience modality scheduled_at sent_at first_token_at last_token_at ended_at lag_seconds
max_gap_seconds chunks finish_reason complete error timeout_seconds request_bytes response_bytes question answer
exact leak none true false null node start deviated steady_states rollbacks duration method output arguments
provider module func controls secrets
"""
_PLAIN = frozenset((*WORDS, *_REPORT_WORDS.split()))
_FORMS = re.compile(
    r"(?P<scheme>(?i:bearer|basic)(?:\s+|%20))(?![a-z]{1,16}[.,;:!?)]*(?:\s|$))[A-Za-z0-9._~+/=:-]{6,}"
    r"|(?P<url>[A-Za-z][A-Za-z0-9+.-]{0,31}://)(?P<user>(?:<secret>|[^\s/?#\"'<>])*@)?"
    r"(?P<rest>(?:<secret>|<hidden>|[^\s\"'<>])*)"
)
_QUERY_VALUE = re.compile(r"([?&#;][^=&#;?\s]{0,128}=)[^&#;\s\"']+")
_OF_EVERY_RECORD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
_HINTS = ("://", "earer", "asic", "EARER", "ASIC")


class Scrubber:
    """Takes secret values out of texts, values and the toolkit's log."""

    def __init__(self, secrets: Mapping[str, Any] | None, environment: Mapping[str, str] = os.environ) -> None:
        """Of ``secrets``, however deep, texts from 4 characters and numbers from 6; of ``environment`` from 8."""
        known = {text for text in _texts(secrets) if len(text) >= _LEAST}
        known |= {value for name, value in environment.items() if _is_secret(name, value)}
        token = _control_token()
        known |= {token} if token else set()
        forms = {form for text in known for form in _forms_of(text)}
        longest_first = sorted(forms, key=len, reverse=True)
        patterns = [*map(re.escape, longest_first), *sorted(map(_begun, filter(_TOKEN.fullmatch, known)))]
        self._known = re.compile("|".join(patterns)) if patterns else None
        self._numbers = frozenset(text for text in known if len(text) >= _LEAST_DIGITS and _is_digits(text))
        self._filter = _Filter(self)
        self._handlers: list[logging.Handler] = []

    def text(self, text: str) -> str:
        """The text without known secrets (plain, URL-quoted, base64), credentials in URLs, Bearer and Basic tokens."""
        if self._known is not None:
            text = self._known.sub(SECRET, text)
        return _FORMS.sub(_without_credentials, text) if any(hint in text for hint in _HINTS) else text

    def holds_secret(self, text: str) -> bool:
        """Whether ``text`` would change; cheaper than making the changed one."""
        return self.text(text) != text

    def value(self, value: Any) -> Any:
        """A strict-JSON copy with every text in it scrubbed, names of objects and secret numbers too."""
        if isinstance(value, str):
            return strict(self._text(value))  # in this order: a secret that is cut in two would no longer be found
        if isinstance(value, Mapping):
            return {self._text(str(k)): self._held(str(k), v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(v) for v in value]
        if self._numbers and isinstance(value, (int, float)) and str(value) in self._numbers:
            return SECRET
        return strict(value)

    def _text(self, text: str) -> str:
        return text if text in _PLAIN else self.text(text)

    def _held(self, name: str, value: Any) -> Any:
        return SECRET if value and isinstance(value, str) and holds_by_name(name) else self.value(value)

    def install(self) -> None:
        """From now on no line of the toolkit's log and console holds a secret. Again: handlers added since, too."""
        for handler in logging.getLogger("chaostoolkit").handlers:
            if self._filter not in handler.filters:
                handler.addFilter(self._filter)
                self._handlers.append(handler)

    def uninstall(self) -> None:
        """Leave the toolkit's log as it was."""
        while self._handlers:
            self._handlers.pop().removeFilter(self._filter)


def holds_by_name(name: str) -> bool:
    """Whether what is called so holds a secret: "api_key", "X-Api-Key", "db_password", not "max_tokens" or "key"."""
    return _HOLDER.search(name) is not None


class _Filter(logging.Filter):
    """Lets every record through, scrubbed."""

    _plain = logging.Formatter()

    def __init__(self, scrubber: Scrubber) -> None:
        super().__init__()
        self._scrubber = scrubber

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true."""
        scrub = self._scrubber.text
        try:
            record.msg = scrub(record.getMessage())
        except Exception:  # arguments that do not fit the text: logging tells where, and shows them, so they go first
            record.msg = scrub(str(record.msg)) + " (with arguments that do not fit this text)"
        record.args = ()
        if record.exc_info and not record.exc_text and record.exc_info[0] is not None:
            record.exc_text = self._plain.formatException(record.exc_info)
        record.exc_info = None  # a formatter would take the text from it again
        record.exc_text = scrub(record.exc_text) if record.exc_text else record.exc_text
        record.stack_info = scrub(record.stack_info) if record.stack_info else record.stack_info
        for name in record.__dict__.keys() - _OF_EVERY_RECORD:  # what a caller added, and a JSON formatter shows
            if isinstance(record.__dict__[name], (str, Mapping, list, tuple)):
                record.__dict__[name] = self._scrubber.value(record.__dict__[name])
        return True


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value) if len(str(value)) >= _LEAST_DIGITS else ""  # a short one is a port, or stands in any figure
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)


def _is_digits(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdecimal()


def _begun(token: str) -> str:
    """A pattern for the beginning of a token, and what of it may follow."""
    return re.escape(token[:_BEGINNING]) + rf"[\w.~+=-]{{0,{len(token) - _BEGINNING}}}"


def _is_secret(name: str, value: str) -> bool:
    by_name = _SECRET_NAME.search(name) is not None and _PLACE_NAME.search(name) is None
    return by_name and len(value) >= _LEAST_OF_ENVIRONMENT


def _control_token() -> str:
    from chaos_mm.control.token import read_token

    try:
        return read_token()
    except (ChaosMMError, OSError):
        return ""  # there is none yet, or it is not safe to read: whoever needs it says so


def _forms_of(secret: str) -> set[str]:
    """The secret as it may stand in a text: as it is, quoted for a URL, escaped for JSON (also within JSON), Python or
    HTML, in hexadecimal and in base64."""
    data = secret.encode("utf-8", "surrogateescape")
    quoted = {quote(data), quote(data, safe=""), quote_plus(data)}
    forms = {secret, *quoted, *(re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), one) for one in quoted)}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    forms |= {*escaped, *(json.dumps(one)[1:-1] for one in escaped)}
    forms |= {html.escape(secret), html.escape(secret, quote=False)}
    forms |= {data.hex(), data.hex().upper()} if len(data) >= _LEAST_ENCODED else set()
    forms |= {line.strip() for line in secret.splitlines() if len(line.strip()) >= _LEAST_OF_ENVIRONMENT}
    return forms | {form for form in _in_base64(data) if len(form) >= _LEAST_ENCODED}


def _in_base64(data: bytes) -> Iterator[str]:
    """Of a longer text in base64, the characters that depend on the secret alone, wherever in the text it begins."""
    for before in range(3):
        padded = base64.b64encode(b"\0" * before + data).rstrip(b"=").decode()
        first = -(-before * 8 // 6)
        whole = (before + len(data)) * 8 // 6
        yield padded[first:whole]
        yield padded[first:whole].translate(str.maketrans("+/", "-_"))


def _without_credentials(found: re.Match[str]) -> str:
    if found["scheme"]:
        return found["scheme"] + SECRET
    user = f"{HIDDEN}@" if found["user"] else ""
    return found["url"] + user + _QUERY_VALUE.sub(rf"\g<1>{HIDDEN}", found["rest"])
