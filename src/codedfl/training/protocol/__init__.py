"""The protocol: what a scheme is, what devices and the server do in a round, and what travels between them."""
