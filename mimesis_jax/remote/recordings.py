"""Recorded answers of an endpoint: a folder of JSON files, each named by what was asked."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

Mode = Literal["record", "replay"]


class RecordingError(ValueError):
    """A recording that cannot be read or written; the message names the file and the mend."""


class Recordings:
    """Answers by the sha256 of the request's body (model, messages, sampling, seed).

    mode: "record" asks the endpoint for what is not there yet and keeps it; "replay" never asks:
    what is not there is a fault. Only whole answers are kept, so a fault is never replayed. Neither
    the endpoint's address nor a key is part of a recording, so it may be moved and shared.

    Raises RecordingError when there is nothing to replay from.
    """

    def __init__(self, folder: str | Path, mode: Mode):
        if mode not in ("record", "replay"):
            raise ValueError(f"mode {mode!r} is neither 'record' nor 'replay'")
        self.folder, self.mode = Path(folder), mode
        if mode == "record":
            self.folder.mkdir(parents=True, exist_ok=True)
        elif not self.folder.is_dir():
            raise RecordingError(f"{self.folder} is no folder: record the calls first")

    def path(self, body: Mapping[str, Any]) -> Path:
        """Where the answer to a request's body lies, or would."""
        plain = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return self.folder / f"{hashlib.sha256(plain.encode()).hexdigest()}.json"

    def find(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """The recorded answer (the endpoint's JSON object), or None.

        Raises RecordingError when the file is there and is no recording of this request.
        """
        path = self.path(body)
        try:
            stored = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RecordingError(f"{path.name} cannot be read ({error}): delete it") from None
        if not isinstance(stored, dict) or stored.get("request") != json.loads(json.dumps(body)):
            raise RecordingError(f"{path.name} records another request than its name: delete it")
        if not isinstance(stored.get("answer"), dict):
            raise RecordingError(f"{path.name} has no answer: delete it")
        return stored["answer"]

    def keep(self, body: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Keeps an answer; the file appears whole or not at all."""
        path = self.path(body)
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "w") as out:
                json.dump({"request": body, "answer": answer}, out, ensure_ascii=False, indent=1)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
