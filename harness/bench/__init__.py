"""What speculation buys: prompts by task, paired timing, and the figures made of it."""
