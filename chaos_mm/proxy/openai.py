"""The OpenAI HTTP protocol: which paths carry media or text, in bodies of which type, and who reads them."""

from typing import Final, NamedTuple

from chaos_mm.proxy.bodies import Reader
from chaos_mm.proxy.chat import read_chat
from chaos_mm.proxy.prompts import prompt_reader
from chaos_mm.proxy.uploads import read_upload


class Endpoint(NamedTuple):
    """A word that Content-Type must hold, and the reader."""

    media_type: str
    reader: Reader


ENDPOINTS: Final = {
    "/v1/chat/completions": Endpoint("json", read_chat),
    "/v1/completions": Endpoint("json", prompt_reader("prompt")),
    "/v1/embeddings": Endpoint("json", prompt_reader("input")),
    "/v1/audio/transcriptions": Endpoint("multipart/form-data", read_upload),
    "/v1/audio/translations": Endpoint("multipart/form-data", read_upload),
}
