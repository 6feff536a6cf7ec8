"""What the target answers when it cannot: an HTTP status and OpenAI's error JSON, as vLLM words it."""

from typing import Any

from chaos_mm.core.errors import ChaosMMError

_TYPES = {400: "BadRequestError", 404: "NotFoundError", 413: "PayloadTooLarge", 503: "ServiceUnavailableError"}


class Refusal(ChaosMMError):
    """A request the model server refuses; ``param`` names the field of the request that is wrong."""

    kind = "refused"

    def __init__(self, message: str, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param

    def to_json(self) -> dict[str, Any]:
        """The body: ``{"error": {"message", "type", "param", "code"}}``."""
        return error_json(str(self), self.status, self.param)


def error_json(message: str, status: int, param: str | None = None) -> dict[str, Any]:
    """OpenAI's error shape; ``code`` is the HTTP status, as vLLM has it."""
    kind = _TYPES.get(status, "InternalServerError" if status >= 500 else "BadRequestError")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}
