"""Kernels: the same formula, faster. Each file holds the operation's definition and says which body runs."""
