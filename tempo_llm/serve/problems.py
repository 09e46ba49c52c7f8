"""Errors in the form of OpenAI's interface: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from tempo_llm.serve.jobs import Failure

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class Problem(Exception):
    """A request that is not served: the HTTP status, what is wrong, and the parameter that it is about."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    @staticmethod
    def of(failure: Failure) -> Problem:
        return Problem(failure.status, failure.message, None, failure.code)

    def body(self) -> dict[str, object]:
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        return {"Retry-After": "1"} if self.status in (429, 503) else {}
