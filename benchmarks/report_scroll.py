"""Does a report open quickly and scroll smoothly? In headless Chromium, wide and as on a phone.

    igos report run.sqlite --out report.html
    python benchmarks/report_scroll.py report.html

A reader sees a frame jerk that takes more than 50 ms. Headless, the processor draws the pictures,
which takes longer than on most desks.
"""

import argparse
import statistics
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = "/usr/bin/chromium"
WINDOWS = {"desktop": (1280, 900), "phone": (390, 844)}
JERK = 50  # milliseconds

# Scrolls by two windows a second, as a hurried reader does, and returns the time of each frame.
SCROLL = """(seconds) => new Promise(done => {
  const frames = [], start = performance.now(), height = window.innerHeight;
  let last = start;
  const tick = now => {
    frames.push(now - last);
    window.scrollBy({top: (now - last) / 1000 * 2 * height, behavior: "instant"});
    last = now;
    const end = window.scrollY + height >= document.documentElement.scrollHeight - 1;
    if (end || now - start > 1000 * seconds) done(frames.slice(1));
    else requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
})"""


def measure(browser: Browser, report: Path, size: tuple[int, int], seconds: float) -> str:
    page = browser.new_page(viewport={"width": size[0], "height": size[1]})
    start = time.perf_counter()
    page.goto(report.resolve().as_uri())
    page.locator("article").first.wait_for()
    opened = time.perf_counter() - start
    frames = page.evaluate(SCROLL, seconds)
    below = page.evaluate("window.scrollY")
    smooth = statistics.fmean(frame <= JERK for frame in frames)
    page.close()
    return (
        f"opened in {opened:.1f} s; {len(frames)} frames over {below:.0f} px, median "
        f"{statistics.median(frames):.0f} ms, {smooth:.1%} within {JERK} ms, longest "
        f"{max(frames):.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0, help="of scrolling")
    parser.add_argument("--chromium", default=CHROMIUM)
    args = parser.parse_args()
    print(f"{args.report}: {args.report.stat().st_size / 1e6:.1f} MB")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.chromium, args=["--no-sandbox"])
        for name, size in WINDOWS.items():
            print(f"{name:8s}{measure(browser, args.report, size, args.seconds)}", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
