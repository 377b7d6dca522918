"""Openings of user turns, by task, which the target completes by sampling."""

from __future__ import annotations

_CHAT = """
Can you tell me about|What is the best way to|How do I|I have been feeling|Please explain why
What are some good|Could you help me plan|I need advice on|Why do people
Tell me the difference between
How can I improve my|What should I cook|Is it safe to|Give me three tips for|Who was
Summarise the history of|Where can I find|I am travelling to|My friend says that|What happens when
Do you think that|How does a|Recommend a book about|What are the benefits of|Can you describe
When did|List the main causes of|I would like to learn|Translate this sentence
What is the capital of
"""
_CODE = """
Write a Python function that|Write a function to compute|How do I sort|Fix the bug in this code:
Write a SQL query that|Explain what this Python code does:|Write a JavaScript function that
Implement a class for|Write a program that reads|How can I parse|Write unit tests for
Create a Python script to|Write a recursive function that|Convert this loop into
What does the keyword
Write a bash command that|Implement binary search|Write a regular expression that matches
How do I handle exceptions in|Write a C program to|Given a list of integers,
Refactor this function so that
Write a Python generator that|Show me an example of|Create an HTML page with|How do I merge two
Write a decorator that|Using pandas,
"""
_MATH = """
If a train travels|What is the sum of|Solve the equation|A shop sells|Find the area of
Calculate the|John has|How many ways can|What is the probability that|A rectangle has
The price of a|Simplify the expression|If x is|Find the value of|A farmer has
Compute the derivative of|A bag contains|Prove that the|What is the next number in
Three friends share
The average of|A car uses|What percentage of|Convert|A tank is filled|Maria buys
Explain how to solve|Two numbers add up to
"""
_CREATIVE = """
Write a short story about|Write a poem about|Imagine that you are|Describe a world where
Write a letter to|Invent a character who|Compose a haiku about|Write the opening of a novel
Tell me a bedtime story about|Write a dialogue between|Create a slogan for|Write a song about
Describe the sound of|Write a scene in which|Make up a legend about|Write a monologue for
Tell a joke about|Write a diary entry of|Describe an old house|Write a fairy tale in which
Give me a title for|Continue this story:|Write a mystery about|Describe a festival
Write a speech for|Once upon a time|Write a review of an imaginary
"""


def _split(block: str) -> list[str]:
    return [lead for line in block.strip().splitlines() for lead in line.split("|")]


LEADS = {
    "chat": _split(_CHAT),
    "code": _split(_CODE),
    "math": _split(_MATH),
    "creative": _split(_CREATIVE),
}
