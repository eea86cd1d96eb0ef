"""Behaves as vLLM's server does from outside, in 50 ms; VLLM_FAKE in the environment says how."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages = {"/health": {}, "/v1/models": {"data": [{"id": "fake", "owned_by": "vllm", "max_model_len": 7}]}}
        self.answer(pages.get(self.path, {}))

    def do_POST(self) -> None:
        self.answer({"environment": dict(os.environ), "arguments": sys.argv[1:]})

    def answer(self, page: object) -> None:
        body = json.dumps(page).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    sys.stdout.write("fake vLLM starts\n")
    sys.stdout.flush()
    match os.environ.get("VLLM_FAKE"):
        case "broken":
            sys.exit("ValueError: no such model")
        case "slow":
            subprocess.run(["/bin/sleep", "300"], check=True)
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler)
    server.serve_forever()
