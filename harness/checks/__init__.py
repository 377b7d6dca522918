"""Checks: plain functions from a subject to a verdict. The suites, the kill matrix and the report
call the same ones."""
