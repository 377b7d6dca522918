"""Conformance and benchmark suite for speculative decoding.

Is an implementation lossless, and what does it buy? ``python -m harness`` lists the commands.
"""

__version__ = "0.1.0"
