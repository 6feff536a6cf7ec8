"""Uploads as multipart/form-data: the clip in `file` of `/v1/audio/transcriptions` and `/v1/audio/translations`.

RFC 7578 and RFC 2046 §5.1: fields stand between delimiter lines, each with its own head. Everything but the file's
bytes is kept.
"""

import re
from collections.abc import Iterator
from email.message import Message

from chaos_mm.core.fault import Target
from chaos_mm.proxy.bodies import Document, Form, Part
from chaos_mm.proxy.json_spans import Span
from chaos_mm.proxy.policy import Undecodable

_NAME = re.compile(rb'[; ]name="?([^";\r\n]*)', re.IGNORECASE)
_MAX_BOUNDARY = 70


def read_upload(body: bytes, content_type: str) -> Document:
    """Find the file and the model. Raises Undecodable("not_understood")."""
    frame = b"\r\n--" + _boundary(content_type)
    model, parts = "", []
    for name, span in _fields(body, frame):
        if name == b"model":
            model = body[span.start : span.end].decode("utf-8", "replace")
        if name == b"file":
            parts.append(Part("file", Target.AUDIO, span, Form.RAW))
    return Document(model, tuple(parts), frame)


def _boundary(content_type: str) -> bytes:
    head = Message()
    head["content-type"] = content_type
    boundary = head.get_param("boundary")
    if head.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        raise Undecodable("not_understood")
    if not 1 <= len(boundary) <= _MAX_BOUNDARY or not boundary.isascii():
        raise Undecodable("not_understood")
    return boundary.encode()


def _fields(body: bytes, frame: bytes) -> Iterator[tuple[bytes, Span]]:
    """Each field's name and where its content lies."""
    # The first delimiter may be the very first line, without the line end that belongs to the others.
    first = -2 if body.startswith(frame[2:]) else body.find(frame)
    if first == -1:
        raise Undecodable("not_understood")
    at = first + len(frame)
    while body[at : at + 2] != b"--":
        head_end = body.find(b"\r\n\r\n", at)
        end = body.find(frame, head_end + 2)
        if head_end < 0 or end < 0:
            raise Undecodable("not_understood")
        name = _NAME.search(body, at, head_end)
        yield name[1] if name else b"", Span(head_end + 4, max(end, head_end + 4))
        at = end + len(frame)
