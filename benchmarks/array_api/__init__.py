"""The array API standard's own tests on `tpuc.numpy`."""
