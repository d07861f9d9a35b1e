"""Debian's Chromium without a screen: how a page is laid out and coloured for real.

Must never reach beyond the page: every name resolves to nothing.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

_PROBE = """<script>addEventListener("load",()=>{const d=document,r=[];
for(const s of d.querySelectorAll("svg")){const v=s.viewBox.baseVal;
for(const t of s.querySelectorAll("text,rect,circle,line,polyline")){const b=t.getBBox();
if(b.x<v.x-1||b.y<v.y-1||b.x+b.width>v.width+1||b.y+b.height>v.height+1)
r.push(t.tagName+" "+(t.textContent||t.getAttribute("class")))}}
const c=getComputedStyle(d.body),q=performance.getEntriesByType("resource").map(e=>e.name);
const e=d.createElement("pre");e.id="probe";e.textContent=JSON.stringify({outside:r,requests:q,
overflow:d.documentElement.scrollWidth-innerWidth,ground:c.backgroundColor,ink:c.color,
text:d.body.innerText.slice(0,200000),drawings:d.querySelectorAll("svg").length});
d.body.appendChild(e)})</script>"""


@dataclass(frozen=True)
class Browser:
    binary: str
    home: Path

    def look(self, page: Path, *, width: int = 1100, dark: bool = False) -> dict[str, Any]:
        """What the layout says of the page: see the probe above."""
        text = page.read_text()
        assert "Content-Security-Policy" in text
        probed = self.home / "probed.html"
        open_text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
        probed.write_text(open_text.replace("</body>", _PROBE + "</body>"))
        flags = [f"--window-size={width},1000", "--dump-dom"]
        flags += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
        dom = self._run(*flags, probed.as_uri())
        found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL)
        assert found is not None, dom[-2000:]
        return dict(json.loads(unescape(found[1])))

    def dom(self, page: Path) -> str:
        """The page's elements as text, once its scripts have run."""
        flags = ("--window-size=1400,1000", "--virtual-time-budget=60000")
        return self._run(*flags, "--dump-dom", page.as_uri())

    def printed(self, page: Path) -> bytes:
        """The page on paper, as PDF."""
        to = self.home / "printed.pdf"
        self._run(f"--print-to-pdf={to}", page.as_uri())
        return to.read_bytes()

    def _run(self, *words: str) -> str:
        command = [
            self.binary,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={self.home / 'profile'}",
            "--virtual-time-budget=5000",
            *words,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout


def found() -> str | None:
    return shutil.which("chromium")
