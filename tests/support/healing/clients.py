#!/usr/bin/python3
"""Users: so many requests a second through one address, each with what came of it, a line each.

``clients.py URL RATE SECONDS OUT [STREAMS]``. A line: ``{"number", "at", "seconds", "status",
"instance", "error"}``; number: as the front logs it; at: Unix seconds when it was sent; status 0:
no answer. STREAMS long streaming requests
run beside, each told when it ends: ``{"stream": true, "tokens", "whole"}``. A program of its own:
standard library only. Requests are sent at their time, whatever became of the earlier ones.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from urllib.parse import urlsplit

LIMIT = 12.0  # seconds: longer than what counts as failed


def main() -> None:
    url, rate, seconds, out = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    streams = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    place = urlsplit(url)
    lock = threading.Lock()
    log = open(out, "a", buffering=1)  # noqa: SIM115 (open until the program ends)

    def note(doc: dict[str, object]) -> None:
        with lock:
            log.write(json.dumps(doc) + "\n")

    def one(number: str) -> None:
        at = time.time()
        doc: dict[str, object] = {
            "number": number, "at": round(at, 4), "status": 0, "instance": "",
        }  # fmt: skip
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=LIMIT)
        try:
            body = json.dumps({"model": "tiny", "prompt": "2+2=", "max_tokens": 2})
            headers = {"Content-Type": "application/json", "X-Number": number}
            connection.request("POST", "/v1/completions", body, headers)
            answer = connection.getresponse()
            answer.read()
            doc.update(status=answer.status, instance=answer.headers.get("X-Instance") or "")
        except (OSError, http.client.HTTPException) as error:
            doc["error"] = type(error).__name__
        finally:
            connection.close()
        doc["seconds"] = round(time.time() - at, 4)
        note(doc)

    def stream() -> None:
        at = time.time()
        doc: dict[str, object] = {"stream": True, "at": round(at, 4), "tokens": 0, "whole": False}
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60.0)
        try:
            body = json.dumps({"prompt": "2+2=", "max_tokens": int(seconds * 60), "stream": True})
            connection.request(
                "POST", "/v1/completions", body, {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            doc.update(status=answer.status, instance=answer.headers.get("X-Instance") or "")
            tokens = 0
            for line in answer:
                tokens += line.startswith(b"data: {")
                doc["whole"] = doc["whole"] or line.startswith(b"data: [DONE]")
            doc["tokens"] = tokens
        except (OSError, http.client.HTTPException) as error:
            doc["error"] = type(error).__name__
        finally:
            connection.close()
        note({**doc, "seconds": round(time.time() - at, 4)})

    workers = [threading.Thread(target=stream) for _ in range(streams)]
    for worker in workers:
        worker.start()
    begun, sent = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        wait = begun + sent / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        number = f"{os.getpid()}-{sent}"
        thread = threading.Thread(target=one, args=(number,), daemon=True)
        thread.start()
        sent += 1
    time.sleep(0.5)
    note({"end": True, "sent": sent, "at": round(time.time(), 4)})
    for worker in workers:
        worker.join(60.0)
    deadline = time.monotonic() + LIMIT
    while threading.active_count() > 1 and time.monotonic() < deadline:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
