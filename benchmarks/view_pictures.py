"""Pictures of pages of `tpuc view`, as docs/ has them: made by headless Chromium.

    python -m benchmarks.view_pictures [--out docs/images] [--browser chromium] [--only view_graph]

Each is a part of a page, named by its address; the pages are made in a temporary folder. It fails where the
page could not be drawn.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tpuc.cli import cli
from tpuc.view.page_file import read_part

ROOT = Path(__file__).resolve().parents[1]
ATTENTION = ("examples/attention.mlir",)
CHIPS = ("examples/transformer_block.hlo", "--target", "v5e", "--target", "v6e")
SLICE = ("examples/slice/tp_mlp_train.hlo", "--target", "v5e:4x2")


@dataclass(frozen=True)
class Picture:
    """A picture: the arguments that make its page, and the address of what it shows.

    In an address ``{kernel}`` is the dearest kernel, ``{bundle}`` its bundle that issues most.
    """

    name: str
    page: tuple[str, ...]
    address: str = ""
    is_dark: bool = False
    height: int = 860


PICTURES = (
    Picture("view_overview", ATTENTION),
    Picture("view_bundles", ATTENTION, "#kernel={kernel}&bundle={bundle}"),
    Picture("view_passes", ATTENTION, "#pass=fusion"),
    Picture("view_graph", ATTENTION, "#hlo={kernel}"),
    Picture("view_timeline", ATTENTION, "#view=timeline", is_dark=True, height=700),
    Picture("view_source", ATTENTION, "#line=examples/attention.py:31"),
    Picture("view_memory", ATTENTION, "#view=memory"),
    Picture("view_compare", CHIPS, "#view=compare"),
    Picture("view_slice", SLICE, "#view=slice"),
)


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--browser", default="chromium")
    parser.add_argument("--only", help="the name of one picture")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pages: dict[tuple[str, ...], Path] = {}
        for picture in PICTURES:
            if arguments.only not in (None, picture.name):
                continue
            if picture.page not in pages:
                pages[picture.page] = make_page(picture.page, Path(folder) / f"{len(pages)}.html")
            take(arguments.browser, pages[picture.page], picture, arguments.out)


def make_page(arguments: tuple[str, ...], path: Path) -> Path:
    done = CliRunner().invoke(cli, ["view", *arguments, "-o", str(path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    print(done.output.strip())
    return path


def take(browser: str, page: Path, picture: Picture, folder: Path) -> None:
    target = folder.resolve() / f"{picture.name}.png"
    theme = "dark" if picture.is_dark else "light"
    address = filled(picture.address or "#view=overview", page)
    place = f"file://{page}{address}&theme={theme}"
    drawn = run(browser, ["--dump-dom", place])
    assert "data-ready=" in drawn, f"{place} was not drawn"
    run(browser, [f"--screenshot={target}", f"--window-size=1400,{picture.height}", place])
    print(f"{target}: {target.stat().st_size / 1000:.0f} kB")


def filled(address: str, page: Path) -> str:
    """An address of this page."""
    text = page.read_text()
    main: Any = read_part(text, "0.main")
    kernel = max(main["sites"], key=lambda site: site["cycles"])["kernel"]
    code: Any = read_part(text, f"0.kernel.{kernel}")
    bundles = [row for row in code["code"] if row[0] == "b"]
    issued = [row[2] * (len(row) - 5) for row in bundles]  # cycles run, times instructions
    return address.format(kernel=kernel, bundle=issued.index(max(issued)))


def run(browser: str, options: list[str]) -> str:
    still = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    command = [browser, *still, "--virtual-time-budget=8000", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
