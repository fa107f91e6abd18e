"""Multiplicative noise as a posterior: dropout, with rates that are given or learnt."""

from bayesprop.inference.dropout.mc_dropout import MCDropout

__all__ = ["MCDropout"]
