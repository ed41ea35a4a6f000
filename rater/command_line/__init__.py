"""The parser of `rater`, and what is made from it: messages, completion, man pages, defaults."""
