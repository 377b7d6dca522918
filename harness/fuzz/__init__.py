"""``python -m harness.fuzz``: bytes that strangers send, through everything that reads them."""
