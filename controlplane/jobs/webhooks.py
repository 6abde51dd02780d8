"""Tell webhooks of alerts that fire: one JSON POST each, again until one of them takes it."""

import logging
from collections.abc import Callable, Sequence

import httpx

from controlplane.domain.alerts import Alert
from eldr_runtime.json_values import to_json_value

logger = logging.getLogger(__name__)

# The background work waits for the answer, so a dead webhook must not keep it long.
TIMEOUT_SECONDS = 3.0

Tell = Callable[[Alert], bool]


def split_urls(urls: str) -> tuple[str, ...]:
    """Read the setting: URLs with commas between."""
    return tuple(url.strip() for url in urls.split(",") if url.strip())


def webhook_teller(urls: Sequence[str], transport: httpx.BaseTransport | None = None) -> Tell:
    """Build the function that tells all webhooks of an alert, and returns whether one took it."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs whole URLs

    def tell(alert: Alert) -> bool:
        body = {"event": "alert firing", "alert": to_json_value(alert)}
        with httpx.Client(timeout=TIMEOUT_SECONDS, transport=transport) as client:
            return sum(_post(client, url, body) for url in urls) > 0

    return tell


def _post(client: httpx.Client, url: str, body: object) -> bool:
    host = httpx.URL(url).host  # the rest of a webhook's URL is often its secret
    try:
        status = client.post(url, json=body).status_code
    except httpx.TransportError as error:
        logger.warning("webhook at %s cannot be reached: %s", host, type(error).__name__)
        return False
    if status >= 400:
        logger.warning("webhook at %s answers with status %s", host, status)
    return status < 400
