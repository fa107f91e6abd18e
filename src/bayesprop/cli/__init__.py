"""The command line: one file for each verb.

bayesprop demo
"""

from bayesprop.cli.entry import main

__all__ = ["main"]
