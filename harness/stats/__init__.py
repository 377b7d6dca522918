"""Statistics that judge sampled output. Each says what it can see, and what it needs to see it."""
