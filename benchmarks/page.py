"""The web page under ten visitors at once: seconds, the slider's milliseconds, memory.

    python benchmarks/page.py --visitors 10 --rounds 3
    python benchmarks/page.py --rounds 8 --method gradcam    # does memory stop growing?

The server is a process of its own; its memory is read from /proc, so this runs on Linux.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, repeat
from pathlib import Path

from gradio_client import Client

LEAVING = 15  # seconds: Gradio looks every few seconds who is gone
QUESTION = (967, 28, "blur", 0)  # espresso, at 28×28


def memory(process: int) -> float:
    """Resident memory in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000


def post(url: str, message: object) -> None:
    """As the page does when the slider moves."""
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(message).encode(), head)
    with urllib.request.urlopen(request) as reply:
        assert "output" in reply.read().decode()


def visit(url: str, method: str, drags: int) -> list[float]:
    """One visitor: the sample, an explanation, and drags of the slider; their seconds."""
    client = Client(url, verbose=False)
    try:
        client.predict(api_name="/sample")
        client.predict(method, *QUESTION, "deletion", 20, api_name="/explain")
        took = []
        for percent in range(0, 100, max(1, 100 // drags)):
            asked = {"data": ["deletion", percent], "session_hash": client.session_hash}
            start = time.perf_counter()
            post(f"{url}/gradio_api/run/drag", asked)
            took.append(time.perf_counter() - start)
        return took
    finally:
        client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--method", default="igos")
    parser.add_argument("--drags", type=int, default=20)
    options = parser.parse_args()
    command = [sys.executable, "-m", "igos.cli", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = server.stdout.readline().split()[0]
        try:
            one = partial(visit, url, options.method)
            alone = one(options.drags)
            time.sleep(LEAVING)
            before = memory(server.pid)
            print(
                f"one drag, alone: {1000 * statistics.median(alone):.0f} ms, "
                f"at most {1000 * max(alone):.0f} ms"
            )
            for at in range(1, options.rounds + 1):
                start = time.perf_counter()
                with ThreadPoolExecutor(options.visitors) as pool:
                    visits = pool.map(one, repeat(options.drags, options.visitors))
                    drags = list(chain.from_iterable(visits))
                seconds = time.perf_counter() - start
                time.sleep(LEAVING)
                now = memory(server.pid)
                print(
                    f"round {at}: {options.visitors} visitors in {seconds:.0f} s; one drag "
                    f"{1000 * statistics.median(drags):.0f} ms; memory {before:.0f} MB before the "
                    f"first round, {now:.0f} MB now"
                )
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
