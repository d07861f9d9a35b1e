"""Draws what a save costs against its number of files and against its size, as SVG.

Measures both (CPU seconds; see `small_files.py` and `discovery.py`) and writes `cost-files.svg` and
`cost-size.svg` into a directory; prints the numbers as JSON. A straight line through the origin is
linear growth. Asserts nothing about time; for a quiet machine.

    python benchmarks/plots.py --to docs
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
for part in ("benchmarks", "crds", "trainer_sidecar", "tests"):
    sys.path.insert(0, str(ROOT / part))

import discovery  # noqa: E402
import small_files  # noqa: E402

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 360, 64, 48, 32, 150
COLOURS = ("#0b6e99", "#c8553d", "#3a7d44", "#7b5ea7", "#b8860b", "#555555", "#d17ba0")


def svg(title: str, *, across: str, up: str, lines: Mapping[str, Points]) -> str:
    """A line for each name, over axes from zero to the largest value."""
    most_x = max((x for points in lines.values() for x, _ in points), default=1) or 1
    most_y = max((y for points in lines.values() for _, y in points), default=1) or 1

    def place(x: float, y: float) -> str:
        at = LEFT + x / most_x * (WIDTH - LEFT - RIGHT)
        return f"{at:.1f},{HEIGHT - BOTTOM - y / most_y * (HEIGHT - BOTTOM - TOP):.1f}"

    def text(x: float, y: float, words: str, anchor: str = "middle") -> str:
        return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'

    floor, end = HEIGHT - BOTTOM, WIDTH - RIGHT
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<path d="M{LEFT} {TOP}V{floor}H{end}" fill="none" stroke="black"/>',
        text((LEFT + end) / 2, 20, title),
        text((LEFT + end) / 2, HEIGHT - 10, across),
        text(LEFT, TOP - 6, up),
        text(LEFT, floor + 16, "0"),
        text(end, floor + 16, f"{most_x:,.4g}"),
        text(LEFT - 6, TOP + 10, f"{most_y:,.3g}", "end"),
    ]
    for at, (name, points) in enumerate(lines.items()):
        colour, where = COLOURS[at % len(COLOURS)], " ".join(place(*point) for point in points)
        drawn.append(f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += [
            f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
            for x, y in (place(*point).split(",") for point in points)
        ]
        drawn.append(f'<g fill="{colour}">{text(end + 8, TOP + 12 + 18 * at, name, "start")}</g>')
    return "\n".join([*drawn, "</svg>", ""])


def of_files(rows: Sequence[Mapping[str, object]]) -> dict[str, Points]:
    """CPU seconds of each part by number of files in one save, from rows of `small_files.py`."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        spent, count = row["one_save"], row["files"]
        assert isinstance(spent, dict)
        assert isinstance(count, int)
        for part, seconds in spent.items():
            lines.setdefault(part, []).append((count, seconds))
    return {name: tuple(points) for name, points in lines.items()}


def of_sizes(gigabytes: Sequence[float]) -> dict[str, Points]:
    """CPU seconds of a verdict on one file of each format by its size, from the page cache."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for size in gigabytes:
        for name, make in discovery.FORMATS.items():
            with tempfile.TemporaryDirectory() as place:
                make(Path(place), int(size * discovery.GB))
                discovery.judge(Path(place))  # into the page cache
                began = time.process_time()
                discovery.judge(Path(place))
                lines.setdefault(name, []).append((size, time.process_time() - began))
    return {name: tuple(points) for name, points in lines.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, required=True, help="the directory of the pictures")
    parser.add_argument("--files", type=int, nargs="*", default=[5_000, 25_000, 50_000, 100_000])
    parser.add_argument("--gigabytes", type=float, nargs="*", default=[0.25, 0.5, 1.0, 2.0])
    options = parser.parse_args()
    load = os.getloadavg()
    rows = [small_files.alone(count) for count in options.files]
    sizes = of_sizes(options.gigabytes)
    pictures = {
        "cost-files.svg": svg(
            "One save of many files of 1 to 4 kB", across="files", up="CPU s", lines=of_files(rows)
        ),
        "cost-size.svg": svg("The verdict on one large file", across="GB", up="CPU s", lines=sizes),
    }
    for name, picture in pictures.items():
        (options.to / name).write_text(picture, encoding="utf-8")
    result = {"files": rows, "sizes": sizes, "load_before": load, "load_after": os.getloadavg()}
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
