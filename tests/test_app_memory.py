"""Memory goes back to the system; each in a process of its own, whose heap is as it was started."""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a matter of glibc")

START = """
import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from igos.app.memory import give_back, share_one_heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000

def in_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()

def main_heap():
    (line,) = [one for one in Path("/proc/self/maps").read_text().splitlines() if "[heap]" in one]
    return [int(end, 16) for end in line.split()[0].split("-")]
"""


def run(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", START + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_what_is_free_goes_back() -> None:
    program = """
blocks = [libc.malloc(100_000) for _ in range(1000)]  # too small for mappings of their own
for block in blocks:
    ctypes.memset(block, 1, 100_000)
for block in blocks[:-1]:  # the last one holds the heap's end
    libc.free(block)
before = resident()
give_back()
print(before - resident())
"""
    (given,) = run(program)
    assert float(given) > 80  # of 100 MB


@pytest.mark.parametrize("shared", [True, False])
def test_threads_share_one_heap(*, shared: bool) -> None:
    program = f"""
if {shared}:
    share_one_heap()
block = in_thread(lambda: libc.malloc(1000))
low, high = main_heap()
print(low <= block < high)
"""
    assert run(program) == [str(shared)]
