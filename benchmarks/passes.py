"""Print the forms of the MXU's passes on this host, how long each takes, and which is used.

    python -m benchmarks.passes

``TPUC_HOST_FEATURES`` chooses a lower set of features than the host has.
"""

from __future__ import annotations

from tpu_sim.jit.host import detect_host
from tpu_sim.jit.installation import LinkedPass, installed_library, pass_pointers
from tpu_sim.jit.pass_forms import pass_forms

_REPEAT = 20


def main() -> None:
    """One line for each form."""
    library = installed_library(True)
    for pointer, forms in zip(
        pass_pointers(library), pass_forms(detect_host()).values(), strict=True
    ):
        for form in forms:
            linked = LinkedPass(library, form.name)
            seconds = min(linked.seconds() for _ in range(_REPEAT))
            is_used = pointer == library.address(form.name)
            print(f"{form.name:36}{seconds * 1e6:8.2f} us{'  used' if is_used else ''}")


if __name__ == "__main__":
    main()
