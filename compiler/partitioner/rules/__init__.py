"""How each family of operations is partitioned."""
