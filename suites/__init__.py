"""Conformance suites: ``pytest suites/ --decoder NAME``. Thin files over ``harness.checks``."""
