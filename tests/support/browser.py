"""A page of `tpuc view` in a real browser, without a network: a script goes through it as a reader does.

The browser prints the document that results; what the script saw is in its ``<pre id="seen">``.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tpuc.cli import cli

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
Seen = dict[str, Any]


def seen_in_page(folder: Path, arguments: Sequence[str], script: str, width: int = 1400) -> Seen:
    """Make the page of ``tpuc view`` with these arguments, let the script go through it, and return what
    it saw."""
    page = folder / "page.html"
    done = CliRunner().invoke(cli, ["view", *arguments, "-o", str(page)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    page.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    options = [
        "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", f"--window-size={width},860",
        f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=60000", "--dump-dom", f"file://{page}",
    ]  # fmt: skip
    run = subprocess.run(
        [BROWSER, *options], capture_output=True, text=True, timeout=240, check=True
    )
    found = re.search(r'<pre id="seen">(.*?)</pre>', run.stdout, re.DOTALL)
    assert found, run.stderr[-2000:]
    seen: Seen = json.loads(html.unescape(found.group(1)))
    return seen
