"""The instruction set: rows with what they use, compute and cost, programs and their texts, files and checks,
chips, equations of time. It imports nothing of the others.

Any file may be imported, by every layer.
"""
