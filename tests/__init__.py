"""What twinkle promises, as tests; `support` is what they share."""
