"""Windows seen from the other side, for what is linear over them."""

from __future__ import annotations

from compiler.hlo.attributes import WindowDim


def turned_window(w: WindowDim, size: int, made: int) -> WindowDim:
    """The window that takes `made` results back to `size` elements."""
    low = w.dilated_size - 1 - w.pad_low
    dilated = 0 if made == 0 else (made - 1) * w.stride + 1
    wanted = (size - 1) * w.base_dilation + w.dilated_size
    return WindowDim(
        w.size, w.base_dilation, low, wanted - low - dilated, w.stride, w.window_dilation
    )
