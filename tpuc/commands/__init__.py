"""What each command does: load, call the library once, print. A command has its file.

The compiler and the evaluator are imported by what needs them, so that a model found in the cache
runs without them.

Nothing here is to be imported: `tpuc.cli` loads these files by name.
"""
