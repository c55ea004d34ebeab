"""Shardings: what they mean for shapes and devices, and how they spread through a program.

Any file may be imported.
"""
