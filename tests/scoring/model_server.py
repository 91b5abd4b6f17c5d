"""A real HTTP server over a transformers model, with the protocols of vLLM, SGLang, TGI and `echo`, and faults."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class ModelServer:
    """What a running server is, and what it was asked.

    Attributes:
        protocol: "vllm", "sglang", "tgi", "echo" or "echo-text" (which refuses token ids).
        served: the model's name.
        late: places behind the right one that log-probabilities are read off: 1 is what some servers do.
        url: its address, /v1 included.
        fault: changes a reply's body; gets the path, the request and the reply, and returns what is sent: an object,
            bytes, or a status with its headers.
        asked: path, headers and body of every request, as they came.
    """

    protocol: str
    language_model: Any
    served: str = "served-model"
    late: int = 0
    url: str = ""
    fault: Callable[[str, Any, Any], Any] = lambda *sent: sent[-1]
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, path: str, body: Any) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": self.served}]}
        native = {"sglang": "/generate", "tgi": "/generate"}.get(self.protocol, "/v1/completions")
        if path != native:
            return 404, {}
        try:
            return getattr(self, self.protocol.replace("-", "_"))(body)
        except (KeyError, TypeError, ValueError):  # a request of another protocol
            return 500, {}

    def vllm(self, body: Any) -> Any:
        ids, new = [*map(int, body["prompt"])], body["max_tokens"]
        choice: dict[str, Any] = {"text": self.continued(ids, new, body.get("stop_token_ids", ()))}
        if "prompt_logprobs" in body:
            rows = [
                {str(i): {"logprob": value, "decoded_token": self.language_model.tokenizer.decode([i])}}
                for i, value in zip(ids[1:], self.logprobs(ids), strict=True)
            ]
            choice["prompt_logprobs"] = [None, *rows]
        return {"choices": [choice]}

    def sglang(self, body: Any) -> Any:
        ids, sampling = body["input_ids"], body["sampling_params"]
        stop = sampling.get("stop_token_ids", ())
        reply: dict[str, Any] = {"text": self.continued(ids, sampling["max_new_tokens"], stop), "meta_info": {}}
        if body.get("return_logprob"):
            values = [None, *self.logprobs(ids)]
            texts = self.language_model.tokenizer.batch_decode([[i] for i in ids])
            reply["meta_info"]["input_token_logprobs"] = list(zip(values, ids, texts, strict=True))
        return reply

    def tgi(self, body: Any) -> Any:
        ids, parameters = self.ids(body["inputs"]), body["parameters"]
        reply: dict[str, Any] = {"generated_text": self.continued(ids, parameters["max_new_tokens"])}
        if parameters.get("decoder_input_details"):
            rows = zip(ids, [None, *self.logprobs(ids)], strict=True)
            decode = self.language_model.tokenizer.decode
            reply["details"] = {"prefill": [{"id": i, "logprob": value, "text": decode([i])} for i, value in rows]}
        return reply

    def echo(self, body: Any) -> Any:
        ids = body["prompt"] if isinstance(body["prompt"], list) else self.ids(body["prompt"])
        text = self.continued(ids, body["max_tokens"])
        choice: dict[str, Any] = {"text": text}
        if body.get("echo"):
            pieces = [self.language_model.tokenizer.decode([i]) for i in ids]
            choice["logprobs"] = {
                "tokens": [*pieces, text],
                "token_logprobs": [None, *self.logprobs(ids), -0.5],
            }
        return {"choices": [choice]}

    def echo_text(self, body: Any) -> Any:
        return (422, {}) if isinstance(body["prompt"], list) else self.echo(body)

    def ids(self, text: str) -> list[int]:
        return list(self.language_model.tokenizer(text).input_ids)

    def logprobs(self, ids: list[int]) -> list[float]:
        import torch

        with self.lock, torch.inference_mode():
            scores = self.language_model.model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        return [scores[place + self.late, i].item() for place, i in enumerate(ids[1:])]

    def continued(self, ids: list[int], new: int, stop: Any = ()) -> str:
        import torch

        ends = sorted({*self.language_model.stop_ids, *stop, self.language_model.tokenizer.eos_token_id})
        prompt = torch.tensor([ids])
        with self.lock:
            made = self.language_model.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=new,
                eos_token_id=ends,
                pad_token_id=ends[0],
            )
        return str(self.language_model.tokenizer.decode(made[0, len(ids) :], skip_special_tokens=True))


@contextmanager
def serving(server: ModelServer) -> Iterator[ModelServer]:
    """The server on a free port of this machine for as long as the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            self.answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def answer(self, body: Any) -> None:
            server.asked.append((self.path, dict(self.headers), body))
            reply = server.fault(self.path, body, server.reply(self.path, body))
            status, headers = 200, {}
            if isinstance(reply, tuple):
                status, headers = reply
                reply = {"error": f"status {status}"}
            if reply is None:  # the connection is cut in the midst of a reply
                self.send_response(200)
                self.send_header("content-length", "1000")
                self.end_headers()
                self.wfile.write(b'{"choices": [')
                self.close_connection = True
                return
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{httpd.server_address[1]}/v1"
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
