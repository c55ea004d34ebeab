"""Damaged files of every kind that tpuc reads: each must give an answer or a clear error."""
