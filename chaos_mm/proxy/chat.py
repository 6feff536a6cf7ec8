"""The parts of an OpenAI chat completion request that a fault can act on, and where they lie in its bytes.

Pictures and clips count in every message; text counts in `user` messages only, since cutting a system prompt or the
model's own turns would change the protocol, not what the user said.
"""

from collections.abc import Iterator
from typing import Final

from chaos_mm.core.fault import Target
from chaos_mm.proxy.bodies import Document, Form, Part, checked_json, text_of
from chaos_mm.proxy.json_spans import STRING, Node, Shape, Span, locate
from chaos_mm.proxy.policy import Undecodable

_URL: Final = Shape({"url": STRING})
_PART: Final = Shape(
    {
        "type": STRING,
        "text": STRING,
        "image_url": _URL,
        "audio_url": _URL,
        "input_audio": Shape({"data": STRING}),
    }
)
_CHAT: Final = Shape({"model": STRING, "messages": Shape(items=Shape({"role": STRING, "content": Shape(items=_PART)}))})
# Part type -> (target, form, member that holds the payload when the part's member is an object).
_KINDS: Final = {
    "text": (Target.TEXT, Form.TEXT, ""),
    "image_url": (Target.IMAGE, Form.URI, "url"),
    "audio_url": (Target.AUDIO, Form.URI, "url"),
    "input_audio": (Target.AUDIO, Form.BASE64, "data"),
}


def read_chat(body: bytes, content_type: str = "") -> Document:
    """Find the parts. Raises Undecodable: invalid_json, not_understood."""
    checked_json(body)
    tree = locate(body, _CHAT)
    if not isinstance(tree, dict) or not isinstance(tree.get("messages"), list):
        raise Undecodable("not_understood")
    return Document(text_of(body, tree.get("model")), tuple(_message_parts(body, tree["messages"])))


def _message_parts(body: bytes, messages: Node) -> Iterator[Part]:
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if not isinstance(message, dict):
            continue
        user = text_of(body, message.get("role")) == "user"
        name, content = f"messages[{index}].content", message.get("content")
        if isinstance(content, Span) and user:
            yield Part(name, Target.TEXT, content, Form.TEXT)
        for at, item in enumerate(content if isinstance(content, list) else ()):
            part = _part(body, f"{name}[{at}]", item)
            if part is not None and (user or part.target is not Target.TEXT):
                yield part


def _part(body: bytes, name: str, item: Node) -> Part | None:
    if not isinstance(item, dict):
        return None
    # Engines take a part without `type` by the member it carries.
    kind = text_of(body, item.get("type")) or next((key for key in _KINDS if key in item), "")
    if kind not in _KINDS:
        return None
    target, form, member = _KINDS[kind]
    payload = item.get(kind)
    if isinstance(payload, dict):
        payload = payload.get(member)
    return Part(name, target, payload, form) if isinstance(payload, Span) else None
