"""The hand-off between vLLM workers as the router sees it; nothing here imports vLLM."""

from collections.abc import Mapping

from eldr_runtime.decode_profile import EncodedCounts
from eldr_runtime.json_values import from_json_value, to_json_value
from eldr_runtime.serving_engine import EngineMetrics, JsonObject
from eldr_runtime.vllm_adapter.metrics_text import read_engine_metrics

COUNTS_FIELD = "eldr"
DECODE_COUNTS_FIELD = "eldr_decode"
_NOT_FOR_PREFILL = ("stream_options", "stop", "stop_token_ids", "min_tokens", "max_completion_tokens")


class VllmEngine:
    """vLLM with a pull connector (NIXL, or MoRIIO in read mode), which leaves the decode worker open."""

    def prefill_request(self, body: Mapping[str, object]) -> JsonObject:
        """Return the body of the prefill leg.

        vLLM keeps KV for another worker only of requests that end by length. So the one token may not stop
        the request: stop strings go, and the end-of-text token is ignored. The token itself is thrown away.
        """
        request = {name: value for name, value in body.items() if name not in _NOT_FOR_PREFILL}
        if "max_completion_tokens" in body:
            request["max_completion_tokens"] = 1
        request.update(max_tokens=1, stream=False, ignore_eos=True, n=1)
        request["kv_transfer_params"] = {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            "remote_engine_id": None,
            "remote_block_ids": None,
            "remote_host": None,
            "remote_port": None,
        }
        return request

    def decode_request(self, body: Mapping[str, object], hand_off: Mapping[str, object] | None) -> JsonObject:
        """Return the body of the decode leg: the client's own, the hand-off, and usage at a stream's end.

        Of the client's own transfer parameters only the wish for decode counts goes on.
        """
        request = {name: value for name, value in body.items() if name != "kv_transfer_params"}
        parameters = {**(hand_off or {}), **_asked(body, DECODE_COUNTS_FIELD)}
        if parameters:
            request["kv_transfer_params"] = parameters
        if body.get("stream") is True:
            asked = body.get("stream_options")
            request["stream_options"] = {**(asked if isinstance(asked, dict) else {}), "include_usage": True}
        return request

    def release_request(self, body: Mapping[str, object], hand_off: Mapping[str, object]) -> JsonObject:
        """Return a decode leg of one token.

        vLLM 0.32 has no call that gives up KV held for another worker: only a decode worker that fetches it
        makes the prefill worker let go before the lease ends.
        """
        request = self.prefill_request(body)
        request["kv_transfer_params"] = dict(hand_off)
        return request

    def read_hand_off(self, answer: Mapping[str, object]) -> JsonObject | None:
        """Return `kv_transfer_params` without the counts; they are the router's and go no further."""
        parameters = answer.get("kv_transfer_params")
        if not isinstance(parameters, dict):
            return None
        hand_off = {str(name): value for name, value in parameters.items() if name != COUNTS_FIELD}
        return hand_off or None

    def read_counts(self, answer: Mapping[str, object]) -> EncodedCounts | None:
        """Return the counts that the connector beside the real one put into `kv_transfer_params`."""
        parameters = answer.get("kv_transfer_params")
        message = parameters.get(COUNTS_FIELD) if isinstance(parameters, dict) else None
        if message is None or message == {}:  # vLLM asked before the connector knew that it has none
            return None
        return from_json_value(EncodedCounts, message, path=f"$.kv_transfer_params.{COUNTS_FIELD}")

    def wants_counts(self, body: Mapping[str, object]) -> bool:
        """Return whether `kv_transfer_params.eldr` is true in the client's body."""
        return bool(_asked(body, COUNTS_FIELD))

    def put_counts(self, answer: Mapping[str, object], counts: EncodedCounts) -> JsonObject:
        """Return a whole answer with the prompt's counts beside the decode counts, if it has any."""
        parameters = answer.get("kv_transfer_params")
        given = parameters if isinstance(parameters, dict) else {}
        return {**answer, "kv_transfer_params": {**given, COUNTS_FIELD: to_json_value(counts)}}

    def read_metrics(self, text: str) -> EngineMetrics:
        """Return vLLM's and the connector's counters."""
        return read_engine_metrics(text)


def _asked(body: Mapping[str, object], field: str) -> JsonObject:
    """Return what a client asks of us in its transfer parameters: the field, or nothing."""
    parameters = body.get("kv_transfer_params")
    return {field: True} if isinstance(parameters, dict) and parameters.get(field) is True else {}
