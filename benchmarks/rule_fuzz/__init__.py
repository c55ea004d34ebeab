"""Rewrites on random matches: every rule, expansion and pair type against the evaluator.

    python -m benchmarks.rule_fuzz --matches 20000 --seed 1 --report docs/rule-matches.md

A *subject* is one rewrite. Its maker builds a random module in which it should fire (for a rule: one
that matches its pattern), the evaluator runs the module before and after on edge values, and the
results are the same: bit for bit, or within the freedom that the rewrite declares.
"""
