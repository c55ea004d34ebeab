"""What `mkdocs build` does besides: the site reads nothing from the network, also for its search.

The theme's offline plugin lets the search work from disk, where browsers start no worker, with a shim that
it names by its address; the one in `assets` (iframe-worker 1.0.4, MIT) takes its place.
"""

from __future__ import annotations

from typing import Any

_REMOTE = "https://unpkg.com/iframe-worker/shim"
_LOCAL = "assets/iframe-worker.js"


def on_post_page(output: str, page: Any, config: Any) -> str:
    """A page's HTML, with the shim beside it."""
    return output.replace(_REMOTE, "../" * page.url.count("/") + _LOCAL)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The HTML of what is no page of the docs, as 404.html."""
    return output_content.replace(_REMOTE, "/" + _LOCAL)
