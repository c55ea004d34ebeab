"""What native code tells of a transfer to a core of another process (`tpu_sim.machine.far_core`)."""

from __future__ import annotations

from tpu_sim.jit.kernel_builtins import Words, compare_and_swap, store_release
from tpu_sim.jit.kernel_language import kernel
from tpu_sim.machine.far_core import MOST_POSTS, POST_COUNT, POST_LOCK, POST_LOST, POST_ROWS

POST = "tpuc_kernel_v1_post"


@kernel(POST)
def post(posts: Words, first: int, size: int) -> None:
    """So many bytes were written, from `first` on; several cores may say so at a time."""
    while not compare_and_swap(posts, POST_LOCK, 0, 1):
        pass
    count = posts[POST_COUNT]
    row = POST_ROWS + 2 * count
    if count > 0 and posts[row - 2] + posts[row - 1] == first:
        posts[row - 1] += size
    elif count < MOST_POSTS:
        posts[row] = first
        posts[row + 1] = size
        posts[POST_COUNT] = count + 1
    else:
        posts[POST_LOST] = 1
    store_release(posts, POST_LOCK, 0)


KERNELS = (post,)
