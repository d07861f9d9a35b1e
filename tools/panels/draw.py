"""Draw the dashboards with data, as SVG, by Grafana's own components in a headless Chromium.

`python tools/panels/draw.py [--answers FILE] [--to docs]`. FILE is what `RTJ_BOARDS` kept of a run
of `tests/e2e/test_metrics.py`; without it the simulated fleet of `kit.board_stories` is asked of a
real Prometheus. No Grafana server is part of it: what units, legends, thresholds and tables look
like is the doing of Grafana's packages; state timelines, bar charts and heat maps are drawn by
`src/drawn.tsx` from the same settings. Must never draw a board whose page complained.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from html import unescape
from pathlib import Path
from typing import Any

from kit import board_stories, boards, browser, tools
from kit.boards import BOARDS, Choice
from kit.prometheus import Prometheus

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
BUNDLE = ("--bundle", "--minify", "--jsx=automatic", "--log-level=error")
BUNDLE += ('--define:process.env.NODE_ENV="production"', "--define:global=window")
BUNDLE += ("--loader:.svg=dataurl", "--loader:.ttf=empty")
BUNDLE += ("--alias:react-custom-scrollbars-2=./src/scrollbar.tsx",)


def answers_of_the_stories() -> dict[str, Any]:
    begin = float(int(time.time()) - board_stories.UNTIL - 60)
    key = board_stories.MENDED
    with Prometheus(scrapes=[], history=board_stories.fleet(begin=begin).scraped()) as prometheus:
        every = Choice(start=begin, end=begin + board_stories.UNTIL, step=10, namespace="ml")
        one = Choice(start=every.start, end=every.end, step=10, namespace="ml", name=key.name)
        choices = dict.fromkeys(BOARDS, every) | {"job": one}
        return boards.kept(prometheus, choices, source="a simulated fleet")


def built() -> Path:
    """The page's folder in the cache, made anew where sources or lock file changed."""
    folder = tools.cache() / "panels"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", "page.html"):
        shutil.copy(HERE / name, folder / name)
    shutil.copytree(HERE / "src", folder / "src", dirs_exist_ok=True)
    lock = (HERE / "package-lock.json").read_text()
    stamp = folder / ".stamp"
    if not stamp.exists() or stamp.read_text() != lock:
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=folder, check=True)
        stamp.write_text(lock)
    esbuild = ["node_modules/.bin/esbuild", "src/main.tsx", "--outfile=main.js", *BUNDLE]
    subprocess.run(esbuild, cwd=folder, check=True)
    return folder


def whole(folder: Path, *, given: dict[str, Any]) -> str:
    """The page as one file: of another file's errors Chromium tells nothing."""
    page = (folder / "page.html").read_text()
    parts = {
        "/* styles of the packages */": (folder / "main.css").read_text(),
        "/* data */": f"window.given = {json.dumps(given)};".replace("</", "<\\/"),
        "/* program */": (folder / "main.js").read_text().replace("</script", "<\\/script"),
    }
    for mark, text in parts.items():
        assert mark in page
        page = page.replace(mark, text)
    return page


def picture(folder: Path, *, name: str, kept: dict[str, Any]) -> str:
    """One dashboard as SVG. Raises `RuntimeError` with what the page complains of."""
    given = {"dashboard": BOARDS[name]} | kept["boards"][name]
    chromium = browser.found()
    if chromium is None:
        raise RuntimeError("chromium is missing. Install it: apt-get install chromium")
    with tempfile.TemporaryDirectory() as home:
        page = Path(home) / "page.html"
        page.write_text(whole(folder, given=given))
        dom = browser.Browser(binary=chromium, home=Path(home)).dom(page)
    if found := re.search(r'<pre id="failed">(.*?)</pre>', dom, re.DOTALL):
        raise RuntimeError(f"{name}: {unescape(found[1])}")
    drawn = re.search(r'<pre id="picture">(.*?)</pre>', dom, re.DOTALL)
    if drawn is None:
        raise RuntimeError(f"{name}: the page gave no picture: {dom[-500:]}")
    return unescape(drawn[1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/panels/draw.py")
    parser.add_argument("--answers", type=Path, help="JSON that RTJ_BOARDS kept of a run")
    parser.add_argument("--namespace", help="shown in place of the run's own, made up by a test")
    parser.add_argument("--to", type=Path, default=DOCS)
    asked = parser.parse_args()
    kept = json.loads(asked.answers.read_text()) if asked.answers else answers_of_the_stories()
    if asked.namespace:
        theirs = kept["boards"]["job"]["variables"]["namespace"]
        kept = json.loads(json.dumps(kept).replace(f'"{theirs}"', f'"{asked.namespace}"'))
    folder = built()
    for name in BOARDS:
        path = asked.to / f"dashboard-{name}.svg"
        path.write_text(picture(folder, name=name, kept=kept))
        print(f"wrote {path}, {path.stat().st_size // 1000} kB, of {kept['source']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
