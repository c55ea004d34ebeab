"""The instruction set: rows with what they use, compute and cost, programs and their texts, files and
checks, chips, equations of time. Every layer may import any of it; it imports nothing of the others."""
