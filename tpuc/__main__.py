"""``python -m tpuc``."""

from tpuc.cli import main

main()
