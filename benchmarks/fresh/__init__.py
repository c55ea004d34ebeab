"""Programs of many fields: do they compile, are they right, how near are they to their rooflines."""
