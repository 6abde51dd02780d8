"""Ids: one a request, which the client may choose, and one a call to a worker, which nobody can guess."""

import re
import secrets

MAX_REQUEST_ID_LENGTH = 128
_SAFE_ID = re.compile(rf"\A[A-Za-z0-9._:-]{{1,{MAX_REQUEST_ID_LENGTH}}}\Z")
_KEY = re.compile(r"\.([0-9a-f]{32})(?![0-9a-f])")


def request_id_from(header: str | None) -> str:
    """Return the client's request id if it is safe to hand on, else one of our own.

    Examples
    --------
    >>> request_id_from("batch-7.12")
    'batch-7.12'
    >>> len(request_id_from("two words"))
    32
    """
    if header is not None and _SAFE_ID.match(header):
        return header
    return secrets.token_hex(16)


def new_attempt_id(request_id: str) -> str:
    """Return the id of one upstream attempt: the request's, and 128 random bits behind it.

    vLLM keys the KV it holds by request id, so one that can be guessed or comes twice would mix up requests.
    """
    return f"{request_id}.{secrets.token_hex(16)}"


def attempt_key(worker_request_id: str) -> str | None:
    """Return the random part of an attempt's id, whatever a worker has put around it; None without one.

    Examples
    --------
    >>> attempt = "batch-7.0123456789abcdef0123456789abcdef"
    >>> attempt_key(f"chatcmpl-{attempt}-0") == attempt_key(attempt) == attempt[-32:]
    True
    """
    found = _KEY.findall(worker_request_id)
    return found[-1] if found else None
