"""Pages of which commands write a part each, between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""

from __future__ import annotations

import datetime
import re
import subprocess
from pathlib import Path

from tpuc import __version__


def version() -> str:
    """Of what a page tells: the version, the commit where there is one, and today's date."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
        )
        commit = f" ({found.stdout.strip()})"
    except (OSError, subprocess.CalledProcessError):
        commit = ""
    return f"tpuc {__version__}{commit}, {datetime.date.today().isoformat()}"


def put_section(name: str, text: str, page: Path, title: str) -> None:
    """Replace a section of `page`, or append it; a new page starts with `title`."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    old = page.read_text(encoding="utf-8") if page.exists() else title
    new = f"{begin}\n{text.strip()}\n{end}"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(old):
        made = pattern.sub(lambda _: new, old)
    else:
        made = f"{old.rstrip()}\n\n{new}\n"
    page.write_text(made, encoding="utf-8")
