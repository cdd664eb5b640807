"""An endpoint on this machine for tests: answers each call as a script says, keeps what it got."""

import contextlib
import http.server
import json
import threading


def completion(text, **message):
    """A chat completion as an OpenAI-compatible server sends it."""
    finish = message.pop("finish", "stop")
    return {
        "id": "x", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "finish_reason": finish,
                     "message": {"role": "assistant", "content": text, **message}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }  # fmt: skip


class Server(http.server.ThreadingHTTPServer):
    """script(number, body) gives (status, headers, text) or "hang"; `got` holds the requests."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, script):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script, self.got, self.headers = script, [], []
        self.lock, self.end = threading.Lock(), threading.Event()
        self.busy = self.most = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *_):
        """Clients that hang up are part of the tests."""


class _Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Silence."""

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with server.lock:
            number = len(server.got)
            server.got.append(body)
            server.headers.append({k.lower(): v for k, v in self.headers.items()})
            server.busy += 1
            server.most = max(server.most, server.busy)
        try:
            answer = server.script(number, body)
            if answer == "hang":
                server.end.wait(30)
            elif answer == "trickle":
                self._trickle()
            else:
                self._send(*answer)
        finally:
            with server.lock:
                server.busy -= 1

    def _send(self, status, headers, text):
        data = text.encode()
        self.send_response(status)
        for name, value in ({"content-type": "application/json"} | headers).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _trickle(self):
        """A byte now and then: no silence is ever long, and no answer ever comes."""
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "1000")
        self.end_headers()
        while not self.server.end.wait(0.02):
            self.wfile.write(b" ")
            self.wfile.flush()


def fine(text="hello", **message):
    return 200, {}, json.dumps(completion(text, **message))


@contextlib.contextmanager
def serving(script):
    server = Server(script)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.end.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
