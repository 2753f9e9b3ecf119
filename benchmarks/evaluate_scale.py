"""Does the cost of a study grow with the photos alone? Photos a second and peak memory.

    python benchmarks/evaluate_scale.py PHOTOS --counts 50,100,200

Each count is a study of its own, in a process of its own, from an empty store.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measure(photos: Path, count: int, words: list[str]) -> tuple[float, float]:
    """Seconds and peak resident memory (MB) of `igos evaluate` on that many photos."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "run.sqlite"
        command = [sys.executable, "-m", "igos.cli", "evaluate", str(photos), "--limit", str(count)]
        start = time.perf_counter()
        process = subprocess.Popen(
            [*command, *words, "--out", str(store)], stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            raise SystemExit(f"igos evaluate ended with {status}")
        return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--counts", default="50,100,200")
    args, words = parser.parse_known_args()
    print(f"igos evaluate {' '.join(words)}")
    for count in map(int, args.counts.split(",")):
        seconds, memory = measure(args.photos, count, words)
        print(
            f"{count:5d} photos  {seconds:6.1f} s  {count / seconds:5.2f} photos/s  "
            f"peak memory {memory:5.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
