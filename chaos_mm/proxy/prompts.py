"""Plain text requests: `/v1/completions` (`prompt`) and `/v1/embeddings` (`input`), a string or a list of strings.

Prompts given as token ids are passed over: there is no text to act on.
"""

from typing import Final

from chaos_mm.core.fault import Target
from chaos_mm.proxy.bodies import Document, Form, Part, Reader, checked_json, text_of
from chaos_mm.proxy.json_spans import STRING, Shape, Span, locate
from chaos_mm.proxy.policy import Undecodable

_STRINGS: Final = Shape(items=STRING)


def prompt_reader(member: str) -> Reader:
    """The reader of bodies whose text stands in that member."""
    shape = Shape({"model": STRING, member: _STRINGS})

    def read(body: bytes, content_type: str) -> Document:
        checked_json(body)
        tree = locate(body, shape)
        if not isinstance(tree, dict):
            raise Undecodable("not_understood")
        found = tree.get(member)
        several = {f"{member}[{at}]": item for at, item in enumerate(found)} if isinstance(found, list) else {}
        named = {member: found} if isinstance(found, Span) else several
        parts = [Part(name, Target.TEXT, span, Form.TEXT) for name, span in named.items() if isinstance(span, Span)]
        return Document(text_of(body, tree.get("model")), tuple(parts))

    return read
