"""A process that takes vLLM's command line and answers as one does; FAKE_VLLM makes it do wrong.

Modes: `refuse` exits with 3 at once; `no_counts` leaves expert counts out; `busy` has a request for ever.
"""

import argparse
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from eldr_runtime.count_codec import ExpertCounts, encode_counts
from eldr_runtime.model_shape import ModelShape

MODE = os.environ.get("FAKE_VLLM", "")
N_TOKENS = 4


def counts_message() -> dict[str, str | int]:
    shape = ModelShape(model="tiny", n_layers=2, n_experts=4, top_k=2)
    counts = np.full(shape.counts_shape, N_TOKENS // 2, dtype=np.uint32)
    return encode_counts(ExpertCounts(shape=shape, counts=counts, tokens=N_TOKENS, covered=N_TOKENS))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        n_running = 1 if MODE == "busy" else 0
        page = f"vllm:num_requests_running {n_running}\nvllm:num_requests_waiting 0\n"
        body = {"/version": json.dumps({"version": os.environ.get("FAKE_VLLM_VERSION", "0.32.0")})}
        self._answer({"/health": "", "/metrics": page, **body}[self.path])

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        field = "eldr_decode" if asked.get("kv_transfer_params") else "eldr"
        parameters = {} if MODE == "no_counts" else {field: counts_message()}
        self._answer(json.dumps({"choices": [{"text": "x"}], "kv_transfer_params": parameters}))

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", dest="module")
    parser.add_argument("--port", type=int)
    arguments, _ = parser.parse_known_args()
    if MODE == "refuse":
        sys.exit(3)
    time.sleep(0.2)  # not healthy at once
    ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
