"""What processes say to each other: frames on a socket, and bytes handed through unread.

A frame is two lengths, a json head and a body of bytes. Nothing that arrives is ever executed or
unpickled, and a stranger's first bytes are read as far as a short limit only.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

MAGIC = b"mimesis1"
LENGTHS = struct.Struct("!8sIQ")  # the magic word, bytes of the head, bytes of the body
HEAD = 1 << 22  # most bytes of a head: a configuration and versions take some thousand
BLOCK = 1 << 18


class Stranger(ConnectionError):
    """The other end speaks, but not as a process of this program."""


class Line:
    """One connection that carries frames; sending is safe from several threads.

    heard: monotonic time of the last byte that arrived.
    """

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self.heard = time.monotonic()
        self._sending = threading.Lock()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, head: dict[str, Any], body: bytes = b"", *, wait: float | None = None) -> bool:
        """Sends a frame; False where another one was still on its way after `wait` seconds.

        Raises OSError when the connection is broken.
        """
        text = json.dumps(head).encode()
        if len(text) > HEAD:
            raise ValueError(f"a head of {len(text)} bytes, the limit is {HEAD}: use the body")
        if not self._sending.acquire(timeout=-1 if wait is None else wait):
            return False
        try:
            self.sock.sendall(LENGTHS.pack(MAGIC, len(text), len(body)) + text)
            if body:
                self.sock.sendall(body)
        finally:
            self._sending.release()
        return True

    def receive(self, *, most: int | None = None) -> tuple[dict[str, Any], bytes] | None:
        """The next frame, None when the other end closed. most: bytes of the body that are taken.

        Raises Stranger for what is no frame, and OSError when the connection breaks.
        """
        lengths = self._exactly(LENGTHS.size, first=True)
        if lengths is None:
            return None
        magic, head, body = LENGTHS.unpack(lengths)
        if magic != MAGIC or head > HEAD or (most is not None and body > most):
            raise Stranger(f"not a frame of this program: {lengths[:8]!r}")
        text, rest = self._exactly(head), self._exactly(body)
        if text is None or rest is None:
            raise ConnectionError("the connection ended inside a frame")
        try:
            told = json.loads(text)
        except ValueError as error:
            raise Stranger(f"a frame whose head is no json: {error}") from error
        if not isinstance(told, dict):
            raise Stranger(f"a frame whose head is a {type(told).__name__}")
        return told, rest

    def _exactly(self, count: int, *, first: bool = False) -> bytes | None:
        """`count` bytes; None where the other end closed before (the first of) them."""
        found = bytearray()
        while len(found) < count:
            part = self.sock.recv(min(BLOCK, count - len(found)))
            if not part:
                if first and found:
                    raise Stranger(f"the connection ended after {bytes(found)!r}")
                return None
            self.heard = time.monotonic()
            found += part
        return bytes(found)

    def close(self) -> None:
        """Ends the connection, also for a thread that is reading from it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def splice(one: socket.socket, other: socket.socket, *, held: bool) -> None:
    """Hands bytes through between two sockets until one ends; then closes both.

    held: when `other` ends first, `one` stays open and silent. JAX aborts its process at once when
    its coordinator's connection closes, before anybody could say whose machine went away.
    """
    one.setblocking(True)
    other.setblocking(True)
    while True:
        ready, _, _ = select.select([one, other], [], [])
        for source in ready:
            target = other if source is one else one
            try:
                part = source.recv(BLOCK)
                if part:
                    target.sendall(part)
            except OSError:
                part = b""
            if not part:
                other.close()
                if held and source is other:
                    _swallow(one)
                one.close()
                return


def _swallow(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(BLOCK):
            pass


def relay(address: tuple[str, int], head: dict[str, Any]) -> tuple[int, Callable[[], None]]:
    """Listens on this host and hands every connection through to `address`, led by one frame.

    Returns (the port, what closes it).
    """
    listening = socket.create_server(("127.0.0.1", 0))

    def through(near: socket.socket) -> None:
        try:
            far = socket.create_connection(address, timeout=10)
            Line(far).send(head)
        except OSError:
            near.close()
            return
        splice(near, far, held=True)

    def accept() -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            thread(through, near)

    thread(accept)
    return listening.getsockname()[1], listening.close


def thread(work: Callable, *given: Any) -> threading.Thread:
    """A thread of that work that does not keep the process alive."""
    made = threading.Thread(target=work, args=given, daemon=True)
    made.start()
    return made


def free_port() -> int:
    """A port of this host that is free at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]
