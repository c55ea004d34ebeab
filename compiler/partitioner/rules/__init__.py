"""How each family of operations is partitioned. Any file may be imported."""
