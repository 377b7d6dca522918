"""Records to reports. ``python -m harness.report`` measures, then renders what it recorded."""
