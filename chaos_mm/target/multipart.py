"""A multipart form read into memory within a limit; nothing of it touches the disk."""

from dataclasses import dataclass, field

from aiohttp import BodyPartReader, web

from chaos_mm.target.refusal import Refusal


@dataclass
class Form:
    """The fields of a form, as bytes."""

    fields: dict[str, bytes] = field(default_factory=dict, repr=False)

    def text(self, name: str) -> str:
        """A field as text, empty when it is missing."""
        return self.fields.get(name, b"").decode("utf-8", "replace")

    def file(self, name: str) -> bytes:
        """A file. Raises Refusal when it is missing."""
        if not self.fields.get(name):
            raise Refusal(f"{name} is missing", 400, name)
        return self.fields[name]


async def read_form(request: web.Request, limit: int) -> Form:
    """Read a ``multipart/form-data`` request. Raises Refusal: 400 if broken, 413 above ``limit`` bytes."""
    if request.content_type != "multipart/form-data":
        raise Refusal("body is not multipart/form-data")
    form, left = Form(), limit
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader) or part.name is None:
                raise Refusal("a part of the form has no name")
            value = bytearray()
            while chunk := await part.read_chunk(64 * 1024):
                value += chunk
                left -= len(chunk)
                if left < 0:
                    raise Refusal(f"body is larger than {limit} bytes", 413)
            form.fields[part.name] = bytes(value)
    except ValueError as error:
        raise Refusal("body is broken multipart/form-data") from error
    return form
